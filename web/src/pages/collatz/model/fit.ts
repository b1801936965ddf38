/** Summary of a histogram of delays, and theoretical expectations. Pure functions. */

import { log2 } from "./number";

export interface HistogramSummary {
  count: number;
  mean: number;
  deviation: number;
  min: number;
  max: number;
  median: number;
}

type Pairs = Iterable<readonly [number, number]>;

function sortPairs(pairs: Pairs): (readonly [number, number])[] {
  return [...pairs].filter(([, times]) => times > 0).sort((left, right) => left[0] - right[0]);
}

/** Return the summary; undefined without values. */
export function summarize(pairs: Pairs): HistogramSummary | undefined {
  const sorted = sortPairs(pairs);
  const count = sorted.reduce((sum, [, times]) => sum + times, 0);
  if (!count) return undefined;
  const mean = sorted.reduce((sum, [value, times]) => sum + value * (times / count), 0);
  const variance = sorted.reduce((sum, [value, times]) => sum + (value - mean) ** 2 * (times / count), 0);
  return {
    count,
    mean,
    deviation: Math.sqrt(variance),
    median: quantile(sorted, count / 2),
    min: sorted[0]?.[0] ?? 0,
    max: sorted.at(-1)?.[0] ?? 0,
  };
}

function quantile(sorted: readonly (readonly [number, number])[], rank: number): number {
  let below = 0;
  for (const [value, times] of sorted) {
    below += times;
    if (below >= rank) return value;
  }
  return 0;
}

/** Return the density of the log-normal distribution with this mean and deviation. */
export function logNormalDensity({
  mean,
  deviation,
}: Pick<HistogramSummary, "mean" | "deviation">): (value: number) => number {
  const shape = Math.log1p((deviation / mean) ** 2);
  const mu = Math.log(mean) - shape / 2;
  const scale = 1 / Math.sqrt(2 * Math.PI * shape);
  return (value) => (value <= 0 ? 0 : (scale / value) * Math.exp(-((Math.log(value) - mu) ** 2) / (2 * shape)));
}

/**
 * Steps per factor e of n: half of the numbers on the way are odd, so a shortcut step multiplies by sqrt(3)/2 on
 * average.
 */
export const SLOPE = 3 / Math.log(4 / 3);

/** Return the mean delay of n in the random model. */
export function expectedDelay(n: bigint): number {
  return SLOPE * Math.LN2 * log2(n);
}

/** Return the mean expected delay over [first, end), from the mean of ln n. */
export function expectedMean(first: bigint, end: bigint): number {
  const [low, high] = [log2(first) * Math.LN2, log2(end) * Math.LN2];
  // mean of ln x between a and b: (b ln b - a ln a) / (b - a) - 1, computed with a / b
  const ratio = Math.exp(low - high);
  if (1 - ratio < 1e-6) return (SLOPE * (low + high)) / 2;
  return SLOPE * Math.max(low, (high - ratio * low) / (1 - ratio) - 1);
}

/** Length classes shared by the log and the histogram. */
export const LENGTH_CLASSES = [
  { name: "at most 10", from: 0, to: 10 },
  { name: "11-50", from: 11, to: 50 },
  { name: "51-100", from: 51, to: 100 },
  { name: "over 100", from: 101, to: Infinity },
] as const;

export function lengthClass(steps: number): number {
  return LENGTH_CLASSES.findIndex(({ to }) => steps <= to);
}

/** Count the values in each class. */
export function countClasses(pairs: Pairs): number[] {
  const counts = LENGTH_CLASSES.map(() => 0);
  for (const [value, times] of pairs) counts[lengthClass(value)] = (counts[lengthClass(value)] as number) + times;
  return counts;
}
