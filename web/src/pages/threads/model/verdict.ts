/** Decides which of two policies is faster, and whether there are enough replicas. Pure functions. */

import { formatPercent } from "../../../lib/format";
import type { Cell, Metric } from "./result";

export interface Verdict {
  /** True if the difference exceeds the intervals. */
  clear: boolean;
  text: string;
}

function half({ ci }: Metric): number {
  return ci ? (ci[1] - ci[0]) / 2 : Number.POSITIVE_INFINITY;
}

function named({ scheduler }: Cell): string {
  return scheduler.replaceAll("_", " ");
}

/** Format both means with three digits in the unit of the larger one. */
function times(first: number, second: number): string {
  const most = Math.max(first, second);
  const [size, unit] = most >= 1e6 ? [1e6, "s"] : most >= 1000 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, 2 - Math.floor(Math.log10(most / size)));
  return `${(first / size).toFixed(digits)} against ${(second / size).toFixed(digits)}\u202f${unit}`;
}

/**
 * Compare the mean makespans of two cells; undefined if one is missing. Both use the same trees of threads, so their
 * makespans are correlated; assuming independence is conservative.
 */
export function verdictOf(mine: Cell, rival: Cell): Verdict | undefined {
  const [one, other] = [mine.metrics.makespan_us, rival.metrics.makespan_us];
  if (!one || !other || !(one.mean > 0) || !(other.mean > 0)) return undefined;
  const [fast, slow, winner, loser] = one.mean <= other.mean ? [one, other, mine, rival] : [other, one, rival, mine];
  const clear = slow.mean - fast.mean > Math.hypot(half(one), half(other));
  const ratio = slow.mean / fast.mean;
  const means = times(fast.mean, slow.mean);
  const text = clear
    ? `${named(winner)} ${formatPercent(ratio - 1, ratio < 1.1 ? 1 : 0)} faster: ${means}`
    : `No clear difference between ${named(winner)} and ${named(loser)}: ${means}; the intervals overlap`;
  return { clear, text };
}
