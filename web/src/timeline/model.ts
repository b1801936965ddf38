/** One replica as typed arrays, without an object per slice. Times are in µs. */

export const RUN = 0,
  BLOCKED = 1,
  JOIN = 2,
  STEAL = 3;
/** Flags of a slice: first slice of its thread; slice after a successful steal, or the steal. */
export const FIRST = 1,
  STOLEN = 2;
/** Marks a missing thread or slice. */
export const NONE = 0xffffffff;
export const NO_CORE = 0xffff;

export interface Threads {
  /** Parents precede their children. */
  parent: Uint32Array;
  /** Index among the children of its parent, or among the roots. */
  number: Uint32Array;
  depth: Uint8Array;
  work: Float64Array;
  /** Number of requested children; fewer exist if the trace was cut or spawns were rejected. */
  requestedChildren: Uint16Array;
  /** Times of becoming ready, first running, and ending; Infinity if the trace does not contain the end. */
  readyAt: Float64Array;
  startedAt: Float64Array;
  endedAt: Float64Array;
  /** First slice of the thread. */
  slice: Uint32Array;
}

export interface Trace {
  cores: number;
  scheduler: string;
  cell: number;
  replica: number;
  /** End of the trace; the makespan unless it was cut. */
  until: number;
  truncated: boolean;
  deadlocked: boolean;
  digest: string;
  parameters: Record<string, unknown>;
  /** Slices of core c, from lanes[c] to lanes[c + 1], ordered by time without overlap. */
  lanes: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  kind: Uint8Array;
  flags: Uint8Array;
  /** Thread of each slice; NONE for steals. */
  thread: Uint32Array;
  /** Next slice of the same thread. */
  next: Uint32Array;
  /** Time that the thread was ready before this slice. */
  wait: Float64Array;
  /** For steals: number of attempts, and the last victim. */
  attempts: Uint32Array;
  victim: Uint16Array;
  threads: Threads;
  steals: { time: Float64Array; from: Uint16Array; to: Uint16Array; thread: Uint32Array };
  /** Number of threads waiting for a core, at each change. */
  ready: { time: Float64Array; count: Uint32Array };
}

/** Return a thread's path; T3.0.1 is child 1 of child 0 of root 3. */
export function threadPath({ parent, number }: Threads, thread: number): string {
  const parts: number[] = [];
  for (let at = thread; at !== NONE; at = parent[at] as number) parts.push(number[at] as number);
  return `T${parts.reverse().join(".")}`;
}

/** Return a thread's name; Thread-3** has two spawns below root 3. */
export function threadName({ parent, number, depth }: Threads, thread: number): string {
  let root = thread;
  while (parent[root] !== NONE) root = parent[root] as number;
  return `Thread-${number[root]}${"*".repeat(depth[thread] as number)}`;
}

/** Return the ancestors of a thread from its root, including the thread. */
export function ancestorsOf({ parent }: Threads, thread: number): number[] {
  const ancestors: number[] = [];
  for (let at = thread; at !== NONE; at = parent[at] as number) ancestors.push(at);
  return ancestors.reverse();
}

export function isDescendant({ parent }: Threads, thread: number, ancestor: number): boolean {
  // Parents come first, so a smaller number can be no descendant.
  let at = thread;
  while (at !== NONE && at > ancestor) at = parent[at] as number;
  return at === ancestor;
}

/** The core of a slice. */
export function coreOf({ lanes }: Trace, slice: number): number {
  let [low, high] = [0, lanes.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((lanes[middle] as number) <= slice) low = middle;
    else high = middle;
  }
  return low;
}

/** How many numbers of a sorted array are at most `value`. */
export function countUpTo(sorted: Float64Array, value: number, from = 0, to = sorted.length): number {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) <= value) low = middle + 1;
    else high = middle;
  }
  return low - from;
}

export function threadSlices({ next, threads }: Trace, thread: number): number[] {
  const slices: number[] = [];
  for (let at = threads.slice[thread] as number; at !== NONE; at = next[at] as number) slices.push(at);
  return slices;
}

/** The buffers of everything inside, so that a worker can hand them over without copying. */
export function collectBuffers(value: unknown): ArrayBuffer[] {
  if (ArrayBuffer.isView(value)) return [value.buffer as ArrayBuffer];
  return value && typeof value === "object" ? Object.values(value).flatMap(collectBuffers) : [];
}
