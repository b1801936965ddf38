/**
 * Export of a trace as Chrome Trace Event JSON, which Perfetto opens, or as CSV. Files are generated in pieces, so that
 * the page stays responsive.
 */

import {
  BLOCKED,
  FIRST,
  JOIN,
  NO_CORE,
  NONE,
  RUN,
  STEAL,
  STOLEN,
  threadPath,
  type Trace,
} from "../../../timeline/model";

const SLICES_PER_PIECE = 2000;

function round(us: number): number {
  return Number(us.toFixed(3));
}

/** Return True if a slice overlaps the window. */
function overlapsWindow({ start, end }: Trace, slice: number, t0: number, t1: number): boolean {
  return (end[slice] as number) >= t0 && (start[slice] as number) <= t1;
}

function* overlappingSlices(trace: Trace, t0: number, t1: number): Generator<[number, number]> {
  for (let core = 0; core < trace.cores; core += 1) {
    for (let slice = trace.lanes[core] as number; slice < (trace.lanes[core + 1] as number); slice += 1) {
      if (overlapsWindow(trace, slice, t0, t1)) yield [core, slice];
    }
  }
}

function sliceFields(trace: Trace, core: number, slice: number): Record<string, unknown> {
  const ts = round(trace.start[slice] as number);
  const base = {
    pid: 1,
    ph: "X",
    tid: core,
    ts,
    dur: round((trace.end[slice] as number) - (trace.start[slice] as number)),
  };
  const kind = trace.kind[slice];
  if (kind === STEAL) {
    const victim = trace.victim[slice];
    const args = {
      victim: victim === NO_CORE ? null : victim,
      attempts: trace.attempts[slice],
      ok: Boolean((trace.flags[slice] as number) & STOLEN),
    };
    return { ...base, name: "steal", cat: "steal", args };
  }
  const thread = trace.thread[slice] as number;
  const path = threadPath(trace.threads, thread);
  if (kind === BLOCKED) return { ...base, name: `${path} waits`, cat: "blocked", args: { path } };
  if (kind === JOIN) return { ...base, name: `${path} joins`, cat: "join", args: { path } };
  const { parent, depth, work, requestedChildren: requested } = trace.threads;
  const above = parent[thread] as number;
  return {
    ...base,
    name: path,
    cat: `d${depth[thread]}`,
    args: {
      path,
      parent: above === NONE ? null : threadPath(trace.threads, above),
      depth: depth[thread],
      work_us: round(work[thread] as number),
      wait_us: round(trace.wait[slice] as number),
      children: requested[thread],
    },
  };
}

/** Generate arrows from parents to the first slices of their children. */
function spawnArrows(
  trace: Trace,
  core: number,
  slice: number,
  coreOfParent: (thread: number) => number,
): Record<string, unknown>[] {
  const thread = trace.thread[slice] as number;
  if (trace.kind[slice] !== RUN || !((trace.flags[slice] as number) & FIRST)) return [];
  const above = trace.threads.parent[thread] as number;
  const from = above === NONE ? -1 : coreOfParent(above);
  if (from < 0) return [];
  const id = threadPath(trace.threads, thread);
  const base = { pid: 1, id, name: "spawn", cat: "spawn" };
  const born = round((trace.threads.readyAt[thread] as number) - 0.001);
  return [
    { ...base, ph: "s", tid: from, ts: born },
    { ...base, ph: "f", bp: "e", tid: core, ts: round(trace.start[slice] as number) },
  ];
}

/** Generate the file for slices between t0 and t1; `note` is stored in otherData. */
export function* formatChromeTrace(
  trace: Trace,
  t0: number,
  t1: number,
  note: Record<string, unknown>,
): Generator<string> {
  const machine = `replica ${trace.replica}: ${trace.cores} cores, ${trace.scheduler}`;
  const names = [
    { ph: "M", name: "process_name", pid: 1, tid: 0, args: { name: machine } },
    ...Array.from({ length: trace.cores }, (_, core) => ({
      ph: "M",
      name: "thread_name",
      pid: 1,
      tid: core,
      args: { name: `core ${core}` },
    })),
  ];
  const cores = sliceCores(trace);
  yield `{"displayTimeUnit": "ns", "traceEvents": [${names.map((each) => JSON.stringify(each)).join(",\n")}`;
  let piece: unknown[] = [];
  for (const [core, slice] of overlappingSlices(trace, t0, t1)) {
    piece.push(
      sliceFields(trace, core, slice),
      ...spawnArrows(trace, core, slice, (thread) => cores[trace.threads.slice[thread] as number] ?? -1),
    );
    if (piece.length < SLICES_PER_PIECE) continue;
    yield `,\n${piece.map((each) => JSON.stringify(each)).join(",\n")}`;
    piece = [];
  }
  if (piece.length) yield `,\n${piece.map((each) => JSON.stringify(each)).join(",\n")}`;
  for (let at = 0; at < trace.ready.time.length; at += SLICES_PER_PIECE) yield formatCounters(trace, t0, t1, at);
  const { cell, replica, scheduler, digest, until, deadlocked, truncated, parameters } = trace;
  const other = {
    type: "thread",
    cell,
    cores: trace.cores,
    scheduler,
    replica,
    digest,
    until_us: until,
    deadlocked,
    truncated,
    parameters,
    ...note,
  };
  yield `], "otherData": ${JSON.stringify(other)}}`;
}

function formatCounters(trace: Trace, t0: number, t1: number, from: number): string {
  const rows: string[] = [];
  for (let at = from; at < Math.min(from + SLICES_PER_PIECE, trace.ready.time.length); at += 1) {
    const ts = trace.ready.time[at] as number;
    if (ts < t0 || ts > t1) continue;
    rows.push(
      `,\n${JSON.stringify({ pid: 1, ph: "C", tid: 0, name: "threads", ts, args: { ready: trace.ready.count[at] } })}`,
    );
  }
  return rows.join("");
}

/** Return the core of every slice. */
function sliceCores({ lanes, cores, start }: Trace): Int16Array {
  const coreOf = new Int16Array(start.length);
  for (let core = 0; core < cores; core += 1) coreOf.fill(core, lanes[core], lanes[core + 1]);
  return coreOf;
}

const KINDS = ["run", "blocked", "join", "steal"];
export const CSV_HEAD = "core,start_us,end_us,kind,thread,parent,depth,work_us,wait_us,stolen,victim,attempts";

export function* formatCsv(trace: Trace, t0: number, t1: number): Generator<string> {
  let piece = [CSV_HEAD];
  for (const [core, slice] of overlappingSlices(trace, t0, t1)) {
    piece.push(formatRow(trace, core, slice));
    if (piece.length < SLICES_PER_PIECE) continue;
    yield `${piece.join("\r\n")}\r\n`;
    piece = [];
  }
  if (piece.length) yield `${piece.join("\r\n")}\r\n`;
}

function formatRow(trace: Trace, core: number, slice: number): string {
  const { threads } = trace;
  const thread = trace.thread[slice] as number;
  const kind = trace.kind[slice] as number;
  const above = thread === NONE ? NONE : (threads.parent[thread] as number);
  const own =
    thread === NONE
      ? ["", "", "", ""]
      : [
          threadPath(threads, thread),
          above === NONE ? "" : threadPath(threads, above),
          threads.depth[thread],
          round(threads.work[thread] as number),
        ];
  const victim = trace.victim[slice] === NO_CORE ? "" : trace.victim[slice];
  const stolen = (trace.flags[slice] as number) & STOLEN ? 1 : 0;
  return [
    core,
    round(trace.start[slice] as number),
    round(trace.end[slice] as number),
    KINDS[kind],
    ...own,
    kind === RUN ? round(trace.wait[slice] as number) : "",
    stolen,
    victim,
    kind === STEAL ? trace.attempts[slice] : "",
  ].join(",");
}

/** Join all pieces, a few per frame. */
export async function joinPieces(pieces: Iterable<string>, type: string): Promise<Blob> {
  const parts: string[] = [];
  let since = performance.now();
  for (const piece of pieces) {
    parts.push(piece);
    if (performance.now() - since < 12) continue;
    await new Promise((done) => setTimeout(done));
    since = performance.now();
  }
  return new Blob(parts, { type });
}
