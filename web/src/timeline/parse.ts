/** Converts the events of a Chrome trace, as written by the kind `thread`, to typed arrays. */

import { BLOCKED, FIRST, JOIN, NO_CORE, NONE, RUN, STEAL, STOLEN, type Threads, type Trace } from "./model";
import type { TraceEvent } from "./scan";

type Numbers = Float64Array | Uint32Array | Uint16Array | Uint8Array;

/** A growing typed array. */
class Column<T extends Numbers> {
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

  at(place: number): number {
    return this.items[place] as number;
  }

  put(place: number, value: number): void {
    this.items[place] = value;
  }

  /** Return the values, reordered if an order is given. */
  taken(order?: Uint32Array): T {
    const array = new this.make(this.length);
    if (!order) array.set(this.items.subarray(0, this.length));
    else
      for (let place = 0; place < order.length; place += 1) array[place] = this.items[order[place] as number] as number;
    return array;
  }
}

/** Maximum number of lanes. Traces of a real machine use process IDs, but this page shows simulated cores. */
const MOST_LANES = 1024;
const KINDS: Record<string, number> = { blocked: BLOCKED, join: JOIN, steal: STEAL };
const doubles = () => new Column(Float64Array);
const words = () => new Column(Uint32Array);
const shorts = () => new Column(Uint16Array);
const octets = () => new Column(Uint8Array);

export class Builder {
  private readonly slice = {
    core: shorts(),
    start: doubles(),
    end: doubles(),
    kind: octets(),
    thread: words(),
    wait: doubles(),
    attempts: words(),
    victim: shorts(),
    good: octets(),
  };
  private readonly threads = { parent: words(), number: words(), depth: octets(), work: doubles(), wanted: shorts() };
  private readonly ready = { time: doubles(), count: words() };
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
    slice.thread.push(kind === STEAL ? NONE : this.threadOf(String(facts.path ?? event.name)));
    slice.wait.push(Number(facts.wait_us ?? 0));
    slice.attempts.push(Number(facts.attempts ?? 0));
    slice.victim.push(typeof facts.victim === "number" ? facts.victim : NO_CORE);
    slice.good.push(facts.ok === true ? 1 : 0);
    if (kind !== RUN) return;
    const thread = slice.thread.at(slice.thread.length - 1);
    this.threads.work.put(thread, Number(facts.work_us ?? event.dur ?? 0));
    this.threads.wanted.put(thread, Number(facts.children ?? 0));
  }

  private threadOf(path: string): number {
    const known = this.paths.get(path);
    if (known !== undefined) return known;
    const dot = path.lastIndexOf(".");
    const parent = dot < 0 ? NONE : this.threadOf(path.slice(0, dot));
    const { threads } = this;
    const thread = threads.parent.length;
    threads.parent.push(parent);
    threads.number.push(Number(path.slice(dot < 0 ? 1 : dot + 1)) || 0);
    threads.depth.push(parent === NONE ? 0 : threads.depth.at(parent) + 1);
    threads.work.push(0);
    threads.wanted.push(0);
    this.paths.set(path, thread);
    return thread;
  }

  /** Return the trace; `about` is the file without its events. */
  finish(about: Record<string, unknown>): Trace {
    const other = (about.otherData ?? {}) as Record<string, unknown>;
    const { slice } = this;
    if (!slice.start.length) throw new Error("the trace has no slices: no event has ph X");
    this.paths.clear();
    const core = slice.core.taken();
    const cores = Math.max(Number(other.cores ?? 1), core.reduce((most, each) => Math.max(most, each), 0) + 1);
    if (cores > MOST_LANES) throw new Error(`the trace has ${cores} lanes; at most ${MOST_LANES} can be drawn`);
    const order = ordered(core, slice.start.taken(), cores);
    const [start, end] = [slice.start.taken(order), slice.end.taken(order)];
    const trace: Trace = {
      cores,
      scheduler: String(other.scheduler ?? "unknown"),
      cell: Number(other.cell ?? 0),
      replica: Number(other.replica ?? 0),
      until: Math.max(
        Number(other.until_us ?? 0),
        end.reduce((most, each) => Math.max(most, each), 1e-3),
      ),
      truncated: other.truncated === true,
      deadlocked: other.deadlocked === true,
      digest: String(other.digest ?? ""),
      parameters: (other.parameters ?? {}) as Record<string, unknown>,
      lanes: lanesOf(core, cores),
      start,
      end,
      kind: slice.kind.taken(order),
      flags: slice.good.taken(order),
      thread: slice.thread.taken(order),
      next: new Uint32Array(start.length).fill(NONE),
      wait: slice.wait.taken(order),
      attempts: slice.attempts.taken(order),
      victim: slice.victim.taken(order),
      threads: this.threadsTaken(),
      steals: { time: new Float64Array(), from: new Uint16Array(), to: new Uint16Array(), thread: new Uint32Array() },
      ready: { time: this.ready.time.taken(), count: this.ready.count.taken() },
    };
    chain(trace);
    flag(trace);
    lives(trace);
    return trace;
  }

  private threadsTaken(): Threads {
    const { parent, number, depth, work, wanted } = this.threads;
    const count = parent.length;
    const times = () => new Float64Array(count).fill(Infinity);
    return {
      parent: parent.taken(),
      number: number.taken(),
      depth: depth.taken(),
      work: work.taken(),
      wanted: wanted.taken(),
      born: times(),
      begun: times(),
      ended: times(),
      slice: new Uint32Array(count).fill(NONE),
    };
  }
}

function lanesOf(core: Uint16Array, cores: number): Uint32Array {
  const lanes = new Uint32Array(cores + 1);
  for (const each of core) lanes[each + 1] = (lanes[each + 1] as number) + 1;
  for (let place = 0; place < cores; place += 1)
    lanes[place + 1] = (lanes[place + 1] as number) + (lanes[place] as number);
  return lanes;
}

/** Return the order of the slices by core and time. */
function ordered(core: Uint16Array, start: Float64Array, cores: number): Uint32Array {
  const lanes = lanesOf(core, cores);
  const order = new Uint32Array(core.length);
  const free = lanes.slice();
  for (const [place, each] of core.entries()) {
    order[free[each] as number] = place;
    free[each] = (free[each] as number) + 1;
  }
  for (let each = 0; each < cores; each += 1) {
    const lane = order.subarray(lanes[each], lanes[each + 1]);
    // Slices of a core are ordered by their end, unless another program wrote the file.
    if (lane.some((place, at) => at > 0 && (start[place] as number) < (start[lane[at - 1] as number] as number))) {
      lane.sort((left, right) => (start[left] as number) - (start[right] as number));
    }
  }
  return order;
}

/** Link the slices of each thread in the order of time. */
function chain({ cores, lanes, start, thread, next, threads }: Trace): void {
  const last = new Uint32Array(threads.parent.length).fill(NONE);
  const link = (slice: number) => {
    const mine = thread[slice] as number;
    if (mine === NONE) return;
    if (last[mine] === NONE) threads.slice[mine] = slice;
    else next[last[mine] as number] = slice;
    last[mine] = slice;
  };
  for (let core = 0; core < cores; core += 1)
    for (let slice = lanes[core] as number; slice < (lanes[core + 1] as number); slice += 1) link(slice);
  // Slices of a thread on several cores arrived core by core.
  for (let each = 0; each < last.length; each += 1) untangle(threads.slice, next, start, each);
}

function untangle(heads: Uint32Array, next: Uint32Array, start: Float64Array, thread: number): void {
  const mine: number[] = [];
  for (let at = heads[thread] as number; at !== NONE; at = next[at] as number) mine.push(at);
  if (
    mine.every(
      (slice, place) => place === 0 || (start[slice] as number) >= (start[mine[place - 1] as number] as number),
    )
  )
    return;
  mine.sort((left, right) => (start[left] as number) - (start[right] as number));
  heads[thread] = mine[0] as number;
  for (const [place, slice] of mine.entries()) next[slice] = mine[place + 1] ?? NONE;
}

/** Flag first slices and stolen slices, which follow successful steals. */
function flag(trace: Trace): void {
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
      const mine = thread[slice] as number;
      if (threads.slice[mine] === slice) flags[slice] = FIRST;
      if (thief !== NONE && kind[slice] === RUN) {
        flags[slice] = (flags[slice] as number) | STOLEN;
        rows.push([end[thief] as number, victim[thief] as number, core, mine]);
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
function lives(trace: Trace): void {
  const { threads, start, end, wait, next, until } = trace;
  const joins = trace.parameters.join !== "none";
  const count = threads.parent.length;
  const known = new Uint16Array(count);
  for (let thread = count - 1; thread >= 0; thread -= 1) {
    const first = threads.slice[thread] as number;
    const parent = threads.parent[thread] as number;
    if (parent !== NONE) known[parent] = (known[parent] as number) + 1;
    if (first === NONE) continue;
    threads.begun[thread] = start[first] as number;
    // Times are integers of ns.
    threads.born[thread] = Math.max(0, Math.round(((start[first] as number) - (wait[first] as number)) * 1000) / 1000);
    let last = first;
    while (next[last] !== NONE) last = next[last] as number;
    const own = end[last] as number;
    const open =
      (trace.truncated && own >= until) ||
      (joins &&
        (trace.truncated || trace.deadlocked) &&
        (known[thread] as number) < (threads.wanted[thread] as number));
    const mine = open ? Infinity : own;
    const before = threads.ended[thread] as number;
    // Before this line, `ended` contains the latest end of a child.
    threads.ended[thread] = joins && known[thread] ? Math.max(mine, before) : mine;
    if (joins && parent !== NONE) {
      const latest = threads.ended[parent] as number;
      const seen = (known[parent] as number) > 1 ? latest : -Infinity;
      threads.ended[parent] = Math.max(seen, threads.ended[thread] as number);
    }
  }
}
