/** Cells of a sweep as lines of speedup over cores, one per scheduler. Pure functions. */

import type { Cell } from "./result";

export interface Point {
  cell: number;
  cores: number;
  mean: number;
  /** Confidence interval of the mean. */
  low: number;
  high: number;
}

export interface Line {
  scheduler: string;
  points: readonly Point[];
}

export interface SweepScale {
  left: number;
  top: number;
  width: number;
  height: number;
  /** Ends of the axes, which start at 0. */
  cores: number;
  speedup: number;
}

/**
 * Return lines in the order of the cells, with points sorted by cores. Cells in which all replicas deadlocked have no
 * point.
 */
export function createLines(cells: readonly Cell[]): Line[] {
  const lines = new Map<string, Point[]>();
  for (const { cell, cores, scheduler, metrics } of cells) {
    if (!metrics.speedup) continue;
    const { mean, ci } = metrics.speedup;
    const [low, high] = ci ?? [mean, mean];
    lines.set(scheduler, [...(lines.get(scheduler) ?? []), { cell, cores, mean, low, high }]);
  }
  return [...lines].map(([scheduler, points]) => ({
    scheduler,
    points: points.toSorted((one, other) => one.cores - other.cores),
  }));
}

/** Return True if the cells have several numbers of cores. */
export function hasSweep(cells: readonly Cell[]): boolean {
  return new Set(cells.map((each) => each.cores)).size > 1;
}

export function coresToX({ left, width: wide, cores }: SweepScale, at: number): number {
  return left + (at / cores) * wide;
}

export function speedupToY({ top, height: tall, speedup }: SweepScale, at: number): number {
  return top + tall * (1 - at / speedup);
}

/** Return the cell whose point is nearest to a position, within `reach` pixels. */
export function nearestCell(
  plane: SweepScale,
  lines: readonly Line[],
  x: number,
  y: number,
  reach: number,
): number | undefined {
  let [best, found] = [reach, undefined as number | undefined];
  for (const { points } of lines)
    for (const point of points) {
      const away = Math.hypot(coresToX(plane, point.cores) - x, speedupToY(plane, point.mean) - y);
      if (away > best) continue;
      [best, found] = [away, point.cell];
    }
  return found;
}

/** Return label positions near `desired`, at least `gap` pixels apart and not below `bottom`. */
export function spreadLabels(desired: readonly number[], gap: number, bottom: number): number[] {
  const order = [...desired.keys()].sort((one, other) => (desired[one] as number) - (desired[other] as number));
  const places = [...desired];
  let min = Number.NEGATIVE_INFINITY;
  for (const each of order) {
    places[each] = Math.max(desired[each] as number, min);
    min = (places[each] as number) + gap;
  }
  let max = bottom;
  for (const each of order.toReversed()) {
    places[each] = Math.min(places[each] as number, max);
    max = (places[each] as number) - gap;
  }
  return places;
}

/** Describe the highest speedup, and the schedulers with overlapping intervals on as many cores. */
export function describeBest(lines: readonly Line[]): string {
  const all = lines.flatMap(({ scheduler, points }) => points.map((point) => ({ scheduler, ...point })));
  const best = all.reduce((max, each) => (each.mean > max.mean ? each : max));
  const alike = all.filter((each) => each !== best && each.cores === best.cores && each.high >= best.low);
  const name = (scheduler: string) => scheduler.replaceAll("_", " ");
  const others = alike.length ? ` (${alike.map((each) => name(each.scheduler)).join(", ")} within the interval)` : "";
  const cores = `${best.cores} core${best.cores === 1 ? "" : "s"}`;
  return `Most: ${Number(best.mean.toPrecision(3))} on ${cores} with ${name(best.scheduler)}${others}`;
}
