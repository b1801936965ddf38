/** Cells of a sweep as lines: speedup over cores, one line for each scheduler. Pure. */

import type { Cell } from "./result";

export interface Point {
  cell: number;
  cores: number;
  mean: number;
  /** The interval of the mean. */
  low: number;
  high: number;
}

export interface Line {
  scheduler: string;
  points: readonly Point[];
}

export interface Plane {
  left: number;
  top: number;
  wide: number;
  tall: number;
  /** Ends of the axes; both begin at 0. */
  cores: number;
  speedup: number;
}

/** Lines in the order of the cells, points by cores. Cells in which every replica deadlocked have no point. */
export function linesOf(cells: readonly Cell[]): Line[] {
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

/** True when there is a line to draw: several numbers of cores. */
export function sweeps(cells: readonly Cell[]): boolean {
  return new Set(cells.map((each) => each.cores)).size > 1;
}

export function xOf({ left, wide, cores }: Plane, at: number): number {
  return left + (at / cores) * wide;
}

export function yOf({ top, tall, speedup }: Plane, at: number): number {
  return top + tall * (1 - at / speedup);
}

/** The cell whose point is nearest to a place on the canvas, within `reach` pixels. */
export function nearest(plane: Plane, lines: readonly Line[], x: number, y: number, reach: number): number | undefined {
  let [best, found] = [reach, undefined as number | undefined];
  for (const { points } of lines)
    for (const point of points) {
      const away = Math.hypot(xOf(plane, point.cores) - x, yOf(plane, point.mean) - y);
      if (away > best) continue;
      [best, found] = [away, point.cell];
    }
  return found;
}

/** Tops of labels that want to stand at `wanted`, moved apart by at least `gap` pixels, none below `bottom`. */
export function apart(wanted: readonly number[], gap: number, bottom: number): number[] {
  const order = [...wanted.keys()].sort((one, other) => (wanted[one] as number) - (wanted[other] as number));
  const places = [...wanted];
  let least = Number.NEGATIVE_INFINITY;
  for (const each of order) {
    places[each] = Math.max(wanted[each] as number, least);
    least = (places[each] as number) + gap;
  }
  let most = bottom;
  for (const each of order.toReversed()) {
    places[each] = Math.min(places[each] as number, most);
    most = (places[each] as number) - gap;
  }
  return places;
}

/** The highest speedup in words, with the schedulers whose intervals on as many cores reach into its own. */
export function bestOf(lines: readonly Line[]): string {
  const all = lines.flatMap(({ scheduler, points }) => points.map((point) => ({ scheduler, ...point })));
  const best = all.reduce((most, each) => (each.mean > most.mean ? each : most));
  const alike = all.filter((each) => each !== best && each.cores === best.cores && each.high >= best.low);
  const name = (scheduler: string) => scheduler.replaceAll("_", " ");
  const others = alike.length ? ` (${alike.map((each) => name(each.scheduler)).join(", ")} within the interval)` : "";
  const cores = `${best.cores} core${best.cores === 1 ? "" : "s"}`;
  return `Most: ${Number(best.mean.toPrecision(3))} on ${cores} with ${name(best.scheduler)}${others}`;
}
