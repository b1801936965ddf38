/**
 * Combines the known data to a picture: a grid or points, with the limits of the axes. Pure functions except for
 * caches.
 */

import type { Points } from "../../../density/painter";
import type { ColorScale } from "../../../density/color";
import { createGrid, type Grid } from "../../../density/grid";
import { joined, type Covered } from "./cover";
import {
  coarseness,
  extent,
  paintDensity,
  paintExact,
  paintSample,
  across,
  thickened,
  type Density,
  type Exact,
  type Frame,
  type Metric,
} from "./layers";
import type { Sample } from "./sample";
import { distance, type View } from "./view";

export interface Wanted {
  view: View;
  log: boolean;
  metric: Metric;
  modulus: number;
  dark: boolean;
  /** Width in pixels. */
  width: number;
  height: number;
  scale: number;
  mostPoints: number;
}

export interface Scene {
  frame: Frame;
  look: ColorScale;
  grid?: Grid;
  points?: Points[];
  /** Numbers of drawn values and nonempty pixels; 0 for points. */
  numbers: number;
  lit: number;
  /** Coarsest source of the picture; a sample only if there is no other source. */
  source: "points" | "exact" | "columns" | "sample" | "none";
}

/** Pixels per number above which each number is a point. */
const POINT_PIXELS = 0.5;

/** Fraction of nonempty pixels below which marks are enlarged. */
const SPARSE = 0.2;

function scanned(delays: Uint16Array): [number, number] {
  let [least, most] = [Infinity, -Infinity];
  for (const delay of delays) {
    if (delay < least) least = delay;
    if (delay > most) most = delay;
  }
  return [least, most];
}

const known = new WeakMap<object, [number, number]>();

/** Return the minimum and maximum delay of a chunk or sample. */
function extremes(all: { delays: Uint16Array }): [number, number] {
  const extremes = known.get(all) ?? scanned(all.delays);
  known.set(all, extremes);
  return extremes;
}

/** Return the range of delays, slightly enlarged and rounded, so that the axis does not jitter. */
export function bounds(
  view: View,
  exact: readonly Exact[],
  densities: readonly Density[],
  samples: readonly Sample[] = [],
): [number, number] {
  let [least, most] = [Infinity, -Infinity];
  for (const each of exact) {
    const far = distance(view, each.start);
    const [from, to] = [Math.max(0, Math.floor(-far)), Math.min(each.delays.length, Math.ceil(view.span - far))];
    if (from >= to) continue;
    const [low, high] = to - from === each.delays.length ? extremes(each) : scanned(each.delays.subarray(from, to));
    [least, most] = [Math.min(least, low), Math.max(most, high)];
  }
  for (const each of densities) [least, most] = [Math.min(least, each.least), Math.max(most, each.greatest)];
  for (const each of samples) {
    const [low, high] = extremes(each);
    [least, most] = [Math.min(least, low), Math.max(most, high)];
  }
  if (most < 0) return [0, 500];
  const step = most > 400 ? 50 : 20;
  const high = Math.ceil((most + step / 4) / step) * step;
  return [least < 0.3 * most ? 0 : Math.floor(least / step) * step, high];
}

function lookOf({ metric, dark, modulus }: Wanted, most: number, least: number): ColorScale {
  if (metric === "residue" && modulus <= 8) return { mode: "class", min: 1, max: modulus, isDark: dark };
  return { mode: metric === "count" ? "count" : "value", min: least, max: Math.max(most, least + 1), isDark: dark };
}

function leastBits(exact: readonly { bits: Uint16Array }[]): number {
  return Math.min(...exact.map((each) => each.bits.reduce((least, bits) => Math.min(least, bits), 65_535)), 65_535);
}

/** Points have the color of a count of 1 on a scale that ends at this count. */
const ALONE = 60;

/** Build a scene of single points. */
function pointScene(wanted: Wanted, frame: Frame, exact: readonly Exact[]): Scene {
  const { view, metric, modulus, width } = wanted;
  const step = width / view.span;
  const parts = exact.flatMap((each) => {
    const far = distance(view, each.start);
    const from = Math.max(0, Math.floor(-far));
    const to = Math.min(each.delays.length, Math.ceil(view.span - far));
    if (from >= to) return [];
    const first = Number((each.start + BigInt(from)) % BigInt(Math.max(1, modulus)));
    const values =
      metric === "peak"
        ? each.bits.subarray(from, to)
        : Uint16Array.from({ length: to - from }, (_, place) =>
            metric === "residue" ? ((first + place) % modulus) + 1 : 1,
          );
    return [
      {
        delays: each.delays.subarray(from, to),
        values,
        left: (far + from + 0.5) * step,
        step,
        bits: each.bits.subarray(from, to),
      },
    ];
  });
  const size = Math.max(3 * wanted.scale, Math.min(9 * wanted.scale, step * 0.7));
  const points = parts.map(({ bits: _, ...each }) => ({ ...each, low: frame.low, high: frame.high, size }));
  const bits = parts.map((each) => ({ bits: each.bits }) as Exact);
  const most = Math.max(1, ...bits.map((each) => each.bits.reduce((high, value) => Math.max(high, value), 0)));
  const look = lookOf(wanted, metric === "peak" ? most : ALONE, metric === "peak" ? leastBits(bits) : 0);
  return {
    frame,
    look,
    points,
    numbers: points.reduce((sum, each) => sum + each.delays.length, 0),
    lit: 0,
    source: "points",
  };
}

/** Maximum width of columns in pixels; a sample shows more than wider columns. */
const WIDEST = 6;

/** Known data about the visible numbers, finest first. */
export interface Known {
  exact: readonly Exact[];
  /** True if all visible numbers are known exactly. */
  whole: boolean;
  densities: readonly Density[];
  samples: readonly Sample[];
}

/** Build the picture of the visible numbers. Each number is drawn from the finest source that contains it. */
export function scene(wanted: Wanted, known: Known): Scene {
  const { view, log, metric, width, height, scale } = wanted;
  const coarse = known.whole ? [] : known.densities;
  const samples = known.whole ? [] : known.samples;
  const [low, high] = bounds(view, known.exact, coarse, samples);
  const frame = { view, low, high, log };
  const single = !log && known.whole && width / view.span >= POINT_PIXELS * wanted.scale;
  if (single && view.span <= wanted.mostPoints) return pointScene(wanted, frame, known.exact);
  if (!known.exact.length && !coarse.length && !samples.length) {
    return { frame, look: lookOf(wanted, 0, 0), numbers: 0, lit: 0, source: "none" };
  }
  const cells = createGrid(width, height);
  const { numbers, source } = painted(cells, frame, wanted, { ...known, densities: coarse, samples });
  const { lit: count, least, greatest } = extent(cells);
  return {
    frame,
    look: lookOf(wanted, greatest, lowEnd(metric, least, known)),
    grid: count < SPARSE * width * height ? thickened(cells, Math.round(1 + scale)) : cells,
    numbers,
    lit: count,
    source: count === 0 ? "none" : source,
  };
}

/**
 * Return the start of the color scale. Sampled numbers represent many, so their scale starts near the smallest cell.
 */
function lowEnd(metric: Metric, least: number, { exact, whole, samples }: Known): number {
  if (metric === "peak") return Math.min(leastBits(exact), leastBits(samples));
  if (metric === "residue") return 0;
  const fewest = whole ? 0 : least;
  return fewest > 4 ? fewest / 4 : 0;
}

function painted(
  cells: Grid,
  frame: Frame,
  { metric, modulus, width }: Wanted,
  { exact, densities, samples }: Known,
): Pick<Scene, "numbers" | "source"> {
  let [covered, numbers]: [Covered, number] = [[], 0];
  for (const each of exact) {
    numbers += paintExact(cells, frame, each, metric, modulus);
    const from = distance(frame.view, each.start);
    covered = joined(covered, [[from, from + each.delays.length]]);
  }
  let source: Scene["source"] = "exact";
  // columns contain only counts of delays
  for (const each of metric === "count" ? densities.toReversed() : []) {
    const before = covered;
    covered = paintDensity(cells, frame, each, covered, Math.max(WIDEST, width / 200));
    if (covered !== before) source = "columns";
  }
  for (const each of samples) {
    const count = paintSample(cells, frame, each, covered, metric, modulus);
    const from = distance(frame.view, each.range.first);
    covered = joined(covered, [[from, from + Number(each.range.end - each.range.first)]]);
    if (count && source === "exact") source = "sample";
    numbers += count;
  }
  return { numbers, source };
}

/** Return the width of the finest columns in numbers; Infinity for none. */
export function finest(densities: readonly Density[]): number {
  return densities.reduce((least, each) => Math.min(least, coarseness(each)), Infinity);
}

/** Return a number's position in pixels from the left edge. */
export function placeOf(frame: Frame, width: number, n: bigint): number {
  return across(frame, width)(distance(frame.view, n) + (frame.log ? 0 : 0.5));
}
