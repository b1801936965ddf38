/** Work, span and the resulting bounds of a trace. */

import { NONE, type Trace } from "./model";

export interface CriticalPath {
  /** Work: time on one core including all costs, in µs. */
  work: number;
  /** Span: time with unlimited cores, the longest path along spawns and joins. */
  span: number;
  /** Threads of this path from the root. */
  path: number[];
  joins: number;
  /** False if the trace was cut or deadlocked; the values then describe only the trace. */
  isComplete: boolean;
}

function spawnCost(trace: Trace, name: string): number {
  return Number(trace.parameters[name] ?? 0);
}

export function computeCriticalPath(trace: Trace): CriticalPath {
  const { parent, work, requestedChildren: requested, readyAt: born } = trace.threads;
  const [dispatch, spawn, join] = [
    spawnCost(trace, "dispatch_cost_us"),
    spawnCost(trace, "spawn_cost_us"),
    spawnCost(trace, "join_cost_us"),
  ];
  const joined = trace.parameters.join !== "none";
  const count = parent.length;
  // End of a thread's own part with unlimited cores; then, bottom-up, the end of its subtree.
  const ends = new Float64Array(count);
  const via = new Uint32Array(count).fill(NONE);
  let [total, joins] = [0, 0];
  for (let thread = 0; thread < count; thread += 1) {
    const above = parent[thread] as number;
    const part = dispatch + (work[thread] as number) + spawn * (requested[thread] as number);
    total += part;
    ends[thread] = (above === NONE ? (born[thread] as number) : (ends[above] as number)) + part;
  }
  const whole = ends.slice();
  for (let thread = count - 1; thread >= 0; thread -= 1) {
    if (via[thread] !== NONE && joined) {
      joins += 1;
      whole[thread] = (whole[thread] as number) + join;
    }
    const above = parent[thread] as number;
    if (above === NONE || (via[above] !== NONE && (whole[thread] as number) <= (whole[above] as number))) continue;
    via[above] = thread;
    whole[above] = whole[thread] as number;
  }
  let last = NONE;
  for (let thread = 0; thread < count; thread += 1) {
    if (parent[thread] === NONE && (last === NONE || (whole[thread] as number) > (whole[last] as number)))
      last = thread;
  }
  const path: number[] = [];
  for (let at = last; at !== NONE; at = via[at] as number) path.push(at);
  return {
    work: total + joins * join,
    span: last === NONE ? 0 : (whole[last] as number),
    path,
    joins,
    isComplete: !trace.truncated && !trace.deadlocked,
  };
}

export interface Bounds {
  parallelism: number;
  /** Lower bound for every schedule on p cores. */
  minMakespan: number;
  /** Graham's and Brent's upper bound for greedy schedules. */
  greedyMakespan: number;
  /** Resulting bounds of the speedup: at least Brent's, at most p and the parallelism. */
  least_speedup: number;
  most_speedup: number;
}

export function computeBounds({ work, span }: Pick<CriticalPath, "work" | "span">, cores: number): Bounds {
  const greedy = (work + (cores - 1) * span) / cores;
  const min = Math.max(work / cores, span);
  return {
    parallelism: span ? work / span : 0,
    minMakespan: min,
    greedyMakespan: greedy,
    least_speedup: work / greedy,
    most_speedup: work / min,
  };
}
