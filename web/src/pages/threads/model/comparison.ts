/** Decides which of two policies is faster, and whether there are enough replicas. Pure functions. */

import { formatPercent } from "../../../lib/format";
import type { Cell, Metric } from "./result";

export interface Comparison {
  /** True if the difference exceeds the intervals. */
  isClear: boolean;
  text: string;
}

function halfInterval({ ci }: Metric): number {
  return ci ? (ci[1] - ci[0]) / 2 : Number.POSITIVE_INFINITY;
}

function schedulerName({ scheduler }: Cell): string {
  return scheduler.replaceAll("_", " ");
}

/** Format both means with three digits in the unit of the larger one. */
function formatTimes(first: number, second: number): string {
  const max = Math.max(first, second);
  const [size, unit] = max >= 1e6 ? [1e6, "s"] : max >= 1000 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, 2 - Math.floor(Math.log10(max / size)));
  return `${(first / size).toFixed(digits)} against ${(second / size).toFixed(digits)}\u202f${unit}`;
}

/**
 * Compare the mean makespans of two cells; undefined if one is missing. Both use the same trees of threads, so their
 * makespans are correlated; assuming independence is conservative.
 */
export function compareCells(cell: Cell, otherCell: Cell): Comparison | undefined {
  const [one, other] = [cell.metrics.makespan_us, otherCell.metrics.makespan_us];
  if (!one || !other || !(one.mean > 0) || !(other.mean > 0)) return undefined;
  const [fast, slow, winner, loser] =
    one.mean <= other.mean ? [one, other, cell, otherCell] : [other, one, otherCell, cell];
  const clear = slow.mean - fast.mean > Math.hypot(halfInterval(one), halfInterval(other));
  const ratio = slow.mean / fast.mean;
  const means = formatTimes(fast.mean, slow.mean);
  const text = clear
    ? `${schedulerName(winner)} ${formatPercent(ratio - 1, ratio < 1.1 ? 1 : 0)} faster: ${means}`
    : `No clear difference between ${schedulerName(winner)} and ${schedulerName(loser)}: ${means}; ` +
      "the intervals overlap";
  return { isClear: clear, text };
}
