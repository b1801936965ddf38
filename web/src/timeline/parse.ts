/** Converts the events of a Chrome trace, as written by the kind `thread`, to typed arrays. */

import { BLOCKED, FIRST, JOIN, NO_CORE, NONE, RUN, STEAL, STOLEN, type Threads, type Trace } from "./model";
import type { TraceEvent } from "./scan";

type Numbers = Float64Array | Uint32Array | Uint16Array | Uint8Array;

/** A growing typed array. */
class TypedColumn<T extends Numbers> {
  length = 0;
  private items: T;

  constructor(private readonly make: new (length: number) => T) {
    this.items = new make(1024);
  }

  push(value: number): void {
    if (this.length === this.items.length) {
      const wider = new this.make(2 * this.length);
      wider.set(this.items);
      this.items = wider;
    }
    this.items[this.length++] = value;
  }

  get(index: number): number {
    return this.items[index] as number;
  }

  set(index: number, value: number): void {
    this.items[index] = value;
  }

  /** Return the values, reordered if an order is given. */
  toArray(order?: Uint32Array): T {
    const array = new this.make(this.length);
    if (!order) array.set(this.items.subarray(0, this.length));
    else
      for (let index = 0; index < order.length; index += 1) array[index] = this.items[order[index] as number] as number;
    return array;
  }
}

/** Maximum number of lanes. Traces of a real machine use process IDs, but this page shows simulated cores. */
const MAX_LANES = 1024;
const KINDS: Record<string, number> = { blocked: BLOCKED, join: JOIN, steal: STEAL };
const float64Column = () => new TypedColumn(Float64Array);
const uint32Column = () => new TypedColumn(Uint32Array);
const uint16Column = () => new TypedColumn(Uint16Array);
const uint8Column = () => new TypedColumn(Uint8Array);

export class TraceBuilder {
  private readonly slice = {
    core: uint16Column(),
    start: float64Column(),
    end: float64Column(),
    kind: uint8Column(),
    thread: uint32Column(),
    wait: float64Column(),
    attempts: uint32Column(),
    victim: uint16Column(),
    isSuccess: uint8Column(),
  };
  private readonly threads = {
    parent: uint32Column(),
    number: uint32Column(),
    depth: uint8Column(),
    work: float64Column(),
    requestedChildren: uint16Column(),
  };
  private readonly ready = { time: float64Column(), count: uint32Column() };
  private readonly paths = new Map<string, number>();

  add = (events: readonly TraceEvent[]): void => {
    for (const event of events) {
      if (event.ph === "X") this.addSlice(event);
      else if (event.ph === "C" && typeof event.args?.ready === "number") {
        this.ready.time.push(event.ts);
        this.ready.count.push(event.args.ready);
      }
    }
  };

  private addSlice(event: TraceEvent): void {
    const { slice } = this;
    const facts = event.args ?? {};
    const kind = KINDS[event.cat ?? ""] ?? RUN;
    slice.core.push(event.tid ?? 0);
    slice.start.push(event.ts);
    slice.end.push(event.ts + (event.dur ?? 0));
    slice.kind.push(kind);
    slice.thread.push(kind === STEAL ? NONE : this.findThread(String(facts.path ?? event.name)));
    slice.wait.push(Number(facts.wait_us ?? 0));
    slice.attempts.push(Number(facts.attempts ?? 0));
    slice.victim.push(typeof facts.victim === "number" ? facts.victim : NO_CORE);
    slice.isSuccess.push(facts.ok === true ? 1 : 0);
    if (kind !== RUN) return;
    const thread = slice.thread.get(slice.thread.length - 1);
    this.threads.work.set(thread, Number(facts.work_us ?? event.dur ?? 0));
    this.threads.requestedChildren.set(thread, Number(facts.children ?? 0));
  }

  private findThread(path: string): number {
    const existing = this.paths.get(path);
    if (existing !== undefined) return existing;
    const dot = path.lastIndexOf(".");
    const parent = dot < 0 ? NONE : this.findThread(path.slice(0, dot));
    const { threads } = this;
    const thread = threads.parent.length;
    threads.parent.push(parent);
    threads.number.push(Number(path.slice(dot < 0 ? 1 : dot + 1)) || 0);
    threads.depth.push(parent === NONE ? 0 : threads.depth.get(parent) + 1);
    threads.work.push(0);
    threads.requestedChildren.push(0);
    this.paths.set(path, thread);
    return thread;
  }

  /** Return the trace; `file` contains the fields outside the events. */
  build(file: Record<string, unknown>): Trace {
    const other = (file.otherData ?? {}) as Record<string, unknown>;
    const { slice } = this;
    if (!slice.start.length) throw new Error("the trace has no slices: no event has ph X");
    this.paths.clear();
    const core = slice.core.toArray();
    const cores = Math.max(Number(other.cores ?? 1), core.reduce((max, each) => Math.max(max, each), 0) + 1);
    if (cores > MAX_LANES) throw new Error(`the trace has ${cores} lanes; at most ${MAX_LANES} can be drawn`);
    const order = orderSlices(core, slice.start.toArray(), cores);
    const [start, end] = [slice.start.toArray(order), slice.end.toArray(order)];
    const trace: Trace = {
      cores,
      scheduler: String(other.scheduler ?? "unknown"),
      cell: Number(other.cell ?? 0),
      replica: Number(other.replica ?? 0),
      until: Math.max(
        Number(other.until_us ?? 0),
        end.reduce((max, each) => Math.max(max, each), 1e-3),
      ),
      truncated: other.truncated === true,
      deadlocked: other.deadlocked === true,
      digest: String(other.digest ?? ""),
      parameters: (other.parameters ?? {}) as Record<string, unknown>,
      lanes: laneOffsets(core, cores),
      start,
      end,
      kind: slice.kind.toArray(order),
      flags: slice.isSuccess.toArray(order),
      thread: slice.thread.toArray(order),
      next: new Uint32Array(start.length).fill(NONE),
      wait: slice.wait.toArray(order),
      attempts: slice.attempts.toArray(order),
      victim: slice.victim.toArray(order),
      threads: this.createThreads(),
      steals: { time: new Float64Array(), from: new Uint16Array(), to: new Uint16Array(), thread: new Uint32Array() },
      ready: { time: this.ready.time.toArray(), count: this.ready.count.toArray() },
    };
    linkSlices(trace);
    flagSlices(trace);
    computeLifetimes(trace);
    return trace;
  }

  private createThreads(): Threads {
    const { parent, number, depth, work, requestedChildren: wanted } = this.threads;
    const count = parent.length;
    const times = () => new Float64Array(count).fill(Infinity);
    return {
      parent: parent.toArray(),
      number: number.toArray(),
      depth: depth.toArray(),
      work: work.toArray(),
      requestedChildren: wanted.toArray(),
      readyAt: times(),
      startedAt: times(),
      endedAt: times(),
      slice: new Uint32Array(count).fill(NONE),
    };
  }
}

function laneOffsets(core: Uint16Array, cores: number): Uint32Array {
  const lanes = new Uint32Array(cores + 1);
  for (const each of core) lanes[each + 1] = (lanes[each + 1] as number) + 1;
  for (let index = 0; index < cores; index += 1)
    lanes[index + 1] = (lanes[index + 1] as number) + (lanes[index] as number);
  return lanes;
}

/** Return the order of the slices by core and time. */
function orderSlices(core: Uint16Array, start: Float64Array, cores: number): Uint32Array {
  const lanes = laneOffsets(core, cores);
  const order = new Uint32Array(core.length);
  const free = lanes.slice();
  for (const [index, each] of core.entries()) {
    order[free[each] as number] = index;
    free[each] = (free[each] as number) + 1;
  }
  for (let each = 0; each < cores; each += 1) {
    const lane = order.subarray(lanes[each], lanes[each + 1]);
    // Slices of a core are ordered by their end, unless another program wrote the file.
    if (lane.some((index, at) => at > 0 && (start[index] as number) < (start[lane[at - 1] as number] as number))) {
      lane.sort((left, right) => (start[left] as number) - (start[right] as number));
    }
  }
  return order;
}

/** Link the slices of each thread in the order of time. */
function linkSlices({ cores, lanes, start, thread, next, threads }: Trace): void {
  const last = new Uint32Array(threads.parent.length).fill(NONE);
  const link = (slice: number) => {
    const sliceThread = thread[slice] as number;
    if (sliceThread === NONE) return;
    if (last[sliceThread] === NONE) threads.slice[sliceThread] = slice;
    else next[last[sliceThread] as number] = slice;
    last[sliceThread] = slice;
  };
  for (let core = 0; core < cores; core += 1)
    for (let slice = lanes[core] as number; slice < (lanes[core + 1] as number); slice += 1) link(slice);
  // Slices of a thread on several cores arrived core by core.
  for (let each = 0; each < last.length; each += 1) sortThreadSlices(threads.slice, next, start, each);
}

function sortThreadSlices(heads: Uint32Array, next: Uint32Array, start: Float64Array, thread: number): void {
  const slices: number[] = [];
  for (let at = heads[thread] as number; at !== NONE; at = next[at] as number) slices.push(at);
  if (
    slices.every(
      (slice, index) => index === 0 || (start[slice] as number) >= (start[slices[index - 1] as number] as number),
    )
  )
    return;
  slices.sort((left, right) => (start[left] as number) - (start[right] as number));
  heads[thread] = slices[0] as number;
  for (const [index, slice] of slices.entries()) next[slice] = slices[index + 1] ?? NONE;
}

/** Flag first slices and stolen slices, which follow successful steals. */
function flagSlices(trace: Trace): void {
  const { cores, lanes, kind, flags, victim, end, thread, threads } = trace;
  const rows: [number, number, number, number][] = [];
  for (let core = 0; core < cores; core += 1) {
    let thief = NONE;
    for (let slice = lanes[core] as number; slice < (lanes[core + 1] as number); slice += 1) {
      const good = flags[slice] === 1;
      flags[slice] = 0;
      if (kind[slice] === STEAL) {
        if (good) [flags[slice], thief] = [STOLEN, slice];
        continue;
      }
      const sliceThread = thread[slice] as number;
      if (threads.slice[sliceThread] === slice) flags[slice] = FIRST;
      if (thief !== NONE && kind[slice] === RUN) {
        flags[slice] = (flags[slice] as number) | STOLEN;
        rows.push([end[thief] as number, victim[thief] as number, core, sliceThread]);
        thief = NONE;
      }
    }
  }
  rows.sort((left, right) => left[0] - right[0]);
  trace.steals = {
    time: Float64Array.from(rows, (row) => row[0]),
    from: Uint16Array.from(rows, (row) => row[1]),
    to: Uint16Array.from(rows, (row) => row[2]),
    thread: Uint32Array.from(rows, (row) => row[3]),
  };
}

/** Compute when threads became ready, started and ended. With joins, a thread lives as long as its children. */
function computeLifetimes(trace: Trace): void {
  const { threads, start, end, wait, next, until } = trace;
  const joins = trace.parameters.join !== "none";
  const count = threads.parent.length;
  const known = new Uint16Array(count);
  for (let thread = count - 1; thread >= 0; thread -= 1) {
    const first = threads.slice[thread] as number;
    const parent = threads.parent[thread] as number;
    if (parent !== NONE) known[parent] = (known[parent] as number) + 1;
    if (first === NONE) continue;
    threads.startedAt[thread] = start[first] as number;
    // Times are integers of ns.
    threads.readyAt[thread] = Math.max(
      0,
      Math.round(((start[first] as number) - (wait[first] as number)) * 1000) / 1000,
    );
    let last = first;
    while (next[last] !== NONE) last = next[last] as number;
    const own = end[last] as number;
    const open =
      (trace.truncated && own >= until) ||
      (joins &&
        (trace.truncated || trace.deadlocked) &&
        (known[thread] as number) < (threads.requestedChildren[thread] as number));
    const ownEnd = open ? Infinity : own;
    const before = threads.endedAt[thread] as number;
    // Before this line, `endedAt` contains the latest end of a child.
    threads.endedAt[thread] = joins && known[thread] ? Math.max(ownEnd, before) : ownEnd;
    if (joins && parent !== NONE) {
      const latest = threads.endedAt[parent] as number;
      const seen = (known[parent] as number) > 1 ? latest : -Infinity;
      threads.endedAt[parent] = Math.max(seen, threads.endedAt[thread] as number);
    }
  }
}
