/** The part of a `thread` job's result that the page reads, and derived values. */

import { binEdges } from "./statistics";
import type { Bin } from "../../../ui/histogram";

export interface Metric {
  mean: number;
  ci: [number, number] | null;
  stdev: number | null;
  min: number;
  p05: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
}

export interface Cell {
  cell: number;
  cores: number;
  scheduler: string;
  replicas: number;
  outcomes: { completed: number; deadlocked: number; capped: number };
  metrics: Record<string, Metric>;
  latency: Record<string, { mean: number; ci: [number, number] | null; p50?: number; p99?: number }>;
  histograms: Record<string, { bins: [number, number][]; replicas?: [number, number][] }>;
  examples: Record<string, { replica: number; makespan_us: number }>;
  deadlock: { probability: { mean: number; ci: [number, number] } } | null;
}

export interface ThreadResult {
  model_version: number;
  parameters: Record<string, unknown>;
  replicas: number;
  cells: Cell[];
  warnings: string[];
  threads_simulated: number | string;
}

/** A bar of the distribution: times in µs, and the range of the result's bins. */
export interface Bar extends Bin {
  low: number;
  high: number;
}

const MAX_BARS = 40;

/** Return the makespans of a cell as bars of equally many bins, including empty bars. */
export function createBars(cell: Cell): Bar[] {
  const bins = cell.histograms.makespan_ns?.bins ?? [];
  const first = bins[0]?.[0];
  const last = bins.at(-1)?.[0];
  if (first === undefined || last === undefined) return [];
  const each = Math.max(1, Math.ceil((last - first + 1) / MAX_BARS));
  const bars: Bar[] = [];
  for (let low = first; low <= last; low += each) {
    const high = low + each - 1;
    bars.push({ low, high, from: binEdges(low)[0] / 1000, to: binEdges(high)[1] / 1000, count: 0 });
  }
  for (const [bin, count] of bins) (bars[Math.floor((bin - first) / each)] as Bar).count += count;
  return bars;
}

/** Return the bin of a quantile of the replicas. */
export function quantileBin(cell: Cell, share: number): number | undefined {
  const bins = cell.histograms.makespan_ns?.bins ?? [];
  let left = share * bins.reduce((sum, [, count]) => sum + count, 0);
  for (const [bin, count] of bins) {
    left -= count;
    if (left <= 0) return bin;
  }
  return bins.at(-1)?.[0];
}

/** Return a replica that the result itself names for these bins. */
export function listedReplica(cell: Cell, low: number, high: number): number | undefined {
  const listed = (cell.histograms.makespan_ns?.replicas ?? [])
    .filter(([bin]) => bin >= low && bin <= high)
    .map(([, replica]) => replica);
  if (listed.length) return Math.min(...listed);
  const fits = (us: number) => us * 1000 >= binEdges(low)[0] - 0.5 && us * 1000 < binEdges(high)[1];
  return Object.entries(cell.examples)
    .filter(([name, { makespan_us }]) => name !== "deadlocked" && fits(makespan_us))
    .map(([, { replica }]) => replica)[0];
}

/**
 * Return the first replica whose makespan is in the bins low..high, or undefined. Replica i is the same in every job
 * with the same seed, so the histogram of the first k replicas shows whether one of them matches, and bisection finds
 * k. `bins` returns the histogram of the first k replicas.
 */
export async function findFirstReplica(
  low: number,
  high: number,
  replicas: number,
  bins: (count: number) => Promise<readonly [number, number][]>,
): Promise<number | undefined> {
  const holds = async (count: number) =>
    (await bins(count)).some(([bin, many]) => many > 0 && bin >= low && bin <= high);
  let reach = Math.min(16, replicas);
  let known = 0;
  while (!(await holds(reach))) {
    if (reach === replicas) return undefined;
    known = reach;
    reach = Math.min(replicas, reach * 4);
  }
  while (reach - known > 1) {
    const middle = (reach + known) >> 1;
    if (await holds(middle)) reach = middle;
    else known = middle;
  }
  return reach - 1;
}

/** Return the mean number of children at a depth; undefined for an unknown law. */
function meanChildren(spawn: Record<string, unknown>, depth: number, deepest: number): number | undefined {
  const number = (name: string) => Number(spawn[name] ?? Number.NaN);
  const laws: Record<string, () => number> = {
    fixed: () => number("children"),
    binomial: () => number("children") * number("probability"),
    geometric: () => number("mean"),
    poisson: () => number("mean"),
    pmf: () =>
      Array.isArray(spawn.probabilities)
        ? spawn.probabilities.reduce((sum: number, each, position) => sum + position * Number(each), 0)
        : Number.NaN,
  };
  const plain = laws[String(spawn.distribution)]?.();
  if (plain === undefined || Number.isNaN(plain)) return undefined;
  return spawn.shape === "linear" ? plain * (1 - depth / deepest) : plain;
}

/** Return the expected number of threads of a replica; undefined for unknown parameters. */
export function expectedThreads(parameters: Record<string, unknown>): number | undefined {
  const [roots, deepest] = [Number(parameters.thread_count), Number(parameters.max_depth)];
  const spawn = (parameters.spawn ?? {}) as Record<string, unknown>;
  if (!(roots > 0) || !(deepest >= 0 && deepest <= 64)) return undefined;
  let [level, sum] = [roots, roots];
  for (let depth = 0; depth < deepest; depth += 1) {
    const mean = meanChildren(spawn, depth, deepest);
    if (mean === undefined) return undefined;
    level *= mean;
    sum += level;
  }
  return sum;
}

/** Conditions under which a parameter applies; the API otherwise rejects or ignores it. */
const PARAMETER_CONDITIONS: Record<string, (parameters: Record<string, unknown>) => boolean> = {
  quantum_us: ({ scheduler }) => [scheduler].flat().includes("round_robin"),
  steal_cost_us: ({ scheduler }) => [scheduler].flat().includes("work_stealing"),
  join_cost_us: ({ join }) => join !== "none",
  trace: () => false,
};

/** Return the schema without fields that do not apply to these parameters, but with given ones. */
export function applicableSchema<S extends { properties?: Record<string, unknown> }>(
  schema: S,
  parameters: Record<string, unknown>,
  entered: Record<string, unknown> = {},
): S {
  const kept = Object.entries(schema.properties ?? {}).filter(
    ([name]) => name in entered || (PARAMETER_CONDITIONS[name]?.(parameters) ?? true),
  );
  return { ...schema, properties: Object.fromEntries(kept) };
}

/** Return the cell that the page opens first: in a sweep over cores, the one with the highest mean speedup. */
export function findOpeningCell(cells: readonly Cell[]): Cell | undefined {
  const speedup = ({ cores, metrics }: Cell) => (cores === cells[0]?.cores ? 0 : (metrics.speedup?.mean ?? 0));
  return cells.toSorted((one, other) => speedup(other) - speedup(one))[0];
}
