/**
 * Combines the known data to a picture: a grid or points, with the limits of the axes. Pure functions except for
 * caches.
 */

import type { Points } from "../../../density/painter";
import type { ColorScale } from "../../../density/color";
import { createGrid, type Grid } from "../../../density/grid";
import { joinRanges, type CoveredRanges } from "./coverage";
import {
  coarseness,
  computeExtent,
  paintDensity,
  paintExact,
  paintSample,
  toPixels,
  enlargeMarks,
  type Density,
  type ExactChunk,
  type Frame,
  type Metric,
} from "./layers";
import type { Sample } from "./sample";
import { distance, type View } from "./view";

export interface SceneRequest {
  view: View;
  isLog: boolean;
  metric: Metric;
  modulus: number;
  isDark: boolean;
  /** Width in pixels. */
  width: number;
  height: number;
  scale: number;
  maxPoints: number;
}

export interface Scene {
  frame: Frame;
  colorScale: ColorScale;
  grid?: Grid;
  points?: Points[];
  /** Numbers of drawn values and nonempty pixels; 0 for points. */
  numbers: number;
  litPixels: number;
  /** Coarsest source of the picture; a sample only if there is no other source. */
  source: "points" | "exact" | "columns" | "sample" | "none";
}

/** Pixels per number above which each number is a point. */
const POINT_PIXELS = 0.5;

/** Fraction of nonempty pixels below which marks are enlarged. */
const SPARSE = 0.2;

function scanExtremes(delays: Uint16Array): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const delay of delays) {
    if (delay < min) min = delay;
    if (delay > max) max = delay;
  }
  return [min, max];
}

const extremesCache = new WeakMap<object, [number, number]>();

/** Return the minimum and maximum delay of a chunk or sample. */
function extremes(all: { delays: Uint16Array }): [number, number] {
  const extremes = extremesCache.get(all) ?? scanExtremes(all.delays);
  extremesCache.set(all, extremes);
  return extremes;
}

/** Return the range of delays, slightly enlarged and rounded, so that the axis does not jitter. */
export function delayBounds(
  view: View,
  exact: readonly ExactChunk[],
  densities: readonly Density[],
  samples: readonly Sample[] = [],
): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const each of exact) {
    const far = distance(view, each.start);
    const [from, to] = [Math.max(0, Math.floor(-far)), Math.min(each.delays.length, Math.ceil(view.span - far))];
    if (from >= to) continue;
    const [low, high] =
      to - from === each.delays.length ? extremes(each) : scanExtremes(each.delays.subarray(from, to));
    [min, max] = [Math.min(min, low), Math.max(max, high)];
  }
  for (const each of densities) [min, max] = [Math.min(min, each.least), Math.max(max, each.greatest)];
  for (const each of samples) {
    const [low, high] = extremes(each);
    [min, max] = [Math.min(min, low), Math.max(max, high)];
  }
  if (max < 0) return [0, 500];
  const step = max > 400 ? 50 : 20;
  const high = Math.ceil((max + step / 4) / step) * step;
  return [min < 0.3 * max ? 0 : Math.floor(min / step) * step, high];
}

function createColorScale({ metric, isDark: dark, modulus }: SceneRequest, max: number, min: number): ColorScale {
  if (metric === "residue" && modulus <= 8) return { mode: "class", min: 1, max: modulus, isDark: dark };
  return { mode: metric === "count" ? "count" : "value", min, max: Math.max(max, min + 1), isDark: dark };
}

function leastBits(exact: readonly { bits: Uint16Array }[]): number {
  return Math.min(...exact.map((each) => each.bits.reduce((min, bits) => Math.min(min, bits), 65_535)), 65_535);
}

/** Points have the color of a count of 1 on a scale that ends at this count. */
const SINGLE_SCALE = 60;

/** Build a scene of single points. */
function createPointScene(request: SceneRequest, frame: Frame, exact: readonly ExactChunk[]): Scene {
  const { view, metric, modulus, width } = request;
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
        : Uint16Array.from({ length: to - from }, (_, index) =>
            metric === "residue" ? ((first + index) % modulus) + 1 : 1,
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
  const size = Math.max(3 * request.scale, Math.min(9 * request.scale, step * 0.7));
  const points = parts.map(({ bits: _, ...each }) => ({ ...each, low: frame.low, high: frame.high, size }));
  const bits = parts.map((each) => ({ bits: each.bits }) as ExactChunk);
  const max = Math.max(1, ...bits.map((each) => each.bits.reduce((high, value) => Math.max(high, value), 0)));
  const look = createColorScale(
    request,
    metric === "peak" ? max : SINGLE_SCALE,
    metric === "peak" ? leastBits(bits) : 0,
  );
  return {
    frame,
    colorScale: look,
    points,
    numbers: points.reduce((sum, each) => sum + each.delays.length, 0),
    litPixels: 0,
    source: "points",
  };
}

/** Maximum width of columns in pixels; a sample shows more than wider columns. */
const MAX_COLUMN_PIXELS = 6;

/** Known data about the visible numbers, finest first. */
export interface KnownData {
  exact: readonly ExactChunk[];
  /** True if all visible numbers are known exactly. */
  isComplete: boolean;
  densities: readonly Density[];
  samples: readonly Sample[];
}

/** Build the picture of the visible numbers. Each number is drawn from the finest source that contains it. */
export function createScene(request: SceneRequest, known: KnownData): Scene {
  const { view, isLog: log, metric, width, height, scale } = request;
  const coarse = known.isComplete ? [] : known.densities;
  const samples = known.isComplete ? [] : known.samples;
  const [low, high] = delayBounds(view, known.exact, coarse, samples);
  const frame = { view, low, high, log };
  const single = !log && known.isComplete && width / view.span >= POINT_PIXELS * request.scale;
  if (single && view.span <= request.maxPoints) return createPointScene(request, frame, known.exact);
  if (!known.exact.length && !coarse.length && !samples.length) {
    return { frame, colorScale: createColorScale(request, 0, 0), numbers: 0, litPixels: 0, source: "none" };
  }
  const cells = createGrid(width, height);
  const { numbers, source } = paintCells(cells, frame, request, { ...known, densities: coarse, samples });
  const { count, min, max: greatest } = computeExtent(cells);
  return {
    frame,
    colorScale: createColorScale(request, greatest, scaleStart(metric, min, known)),
    grid: count < SPARSE * width * height ? enlargeMarks(cells, Math.round(1 + scale)) : cells,
    numbers,
    litPixels: count,
    source: count === 0 ? "none" : source,
  };
}

/**
 * Return the start of the color scale. Sampled numbers represent many, so their scale starts near the smallest cell.
 */
function scaleStart(metric: Metric, min: number, { exact, isComplete: whole, samples }: KnownData): number {
  if (metric === "peak") return Math.min(leastBits(exact), leastBits(samples));
  if (metric === "residue") return 0;
  const fewest = whole ? 0 : min;
  return fewest > 4 ? fewest / 4 : 0;
}

function paintCells(
  cells: Grid,
  frame: Frame,
  { metric, modulus, width }: SceneRequest,
  { exact, densities, samples }: KnownData,
): Pick<Scene, "numbers" | "source"> {
  let [covered, numbers]: [CoveredRanges, number] = [[], 0];
  for (const each of exact) {
    numbers += paintExact(cells, frame, each, metric, modulus);
    const from = distance(frame.view, each.start);
    covered = joinRanges(covered, [[from, from + each.delays.length]]);
  }
  let source: Scene["source"] = "exact";
  // columns contain only counts of delays
  for (const each of metric === "count" ? densities.toReversed() : []) {
    const before = covered;
    covered = paintDensity(cells, frame, each, covered, Math.max(MAX_COLUMN_PIXELS, width / 200));
    if (covered !== before) source = "columns";
  }
  for (const each of samples) {
    const count = paintSample(cells, frame, each, covered, metric, modulus);
    const from = distance(frame.view, each.range.first);
    covered = joinRanges(covered, [[from, from + Number(each.range.end - each.range.first)]]);
    if (count && source === "exact") source = "sample";
    numbers += count;
  }
  return { numbers, source };
}

/** Return the width of the finest columns in numbers; Infinity for none. */
export function finestColumn(densities: readonly Density[]): number {
  return densities.reduce((min, each) => Math.min(min, coarseness(each)), Infinity);
}

/** Return a number's position in pixels from the left edge. */
export function numberPosition(frame: Frame, width: number, n: bigint): number {
  return toPixels(frame, width)(distance(frame.view, n) + (frame.log ? 0 : 0.5));
}
