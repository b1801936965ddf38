/** Delays as counts on a grid of pixels, from exact values or columns of jobs. Pure functions. */

import { createGrid, type Grid } from "../../../density/grid";
import { joinRanges, uncoveredParts, type CoveredRanges } from "./coverage";
import { unpack } from "./packed";
import type { Sample } from "./sample";
import { distance, type View } from "./view";

export interface Frame {
  view: View;
  /** Delay at the lower and the upper edge. */
  low: number;
  high: number;
  /** True if the x axis shows log2 n. */
  log: boolean;
}

/** Map a distance from the left edge in numbers to pixel columns. */
export function toPixels({ view, log }: Frame, width: number): (far: number) => number {
  if (!log) {
    const scale = width / view.span;
    return (far) => far * scale;
  }
  // log2(left + far) - log2(left) without loss of precision for a large left
  const left = Math.max(1, Number(view.base) + view.frac);
  const scale = width / Math.log1p(view.span / left);
  return (far) => Math.log1p(Math.max(far, 1 - left) / left) * scale;
}

/** Map a distance from the left edge in pixel columns to numbers, the inverse of `toPixels`. */
export function fromPixels({ view, log }: Frame, width: number): (x: number) => number {
  if (!log) return (x) => (x * view.span) / width;
  const left = Math.max(1, Number(view.base) + view.frac);
  const scale = Math.log1p(view.span / left) / width;
  return (x) => Math.expm1(x * scale) * left;
}

export type Metric = "count" | "peak" | "residue";

/** Value of a cell with several residues. */
export const MIXED_RESIDUES = 9;

export interface ExactChunk {
  start: bigint;
  delays: Uint16Array;
  bits: Uint16Array;
}

/** Return how a number changes its cell: a count, the greatest peak bits, or the residue plus one. */
function createCellUpdate(metric: Metric, exact: ExactChunk, modulus: number): (old: number, index: number) => number {
  if (metric === "count") return (old) => old + 1;
  if (metric === "peak") return (old, index) => Math.max(old, exact.bits[index] as number);
  const first = Number(exact.start % BigInt(modulus));
  return (old, index) => {
    const own = ((first + index) % modulus) + 1;
    return old === 0 || old === own ? own : MIXED_RESIDUES;
  };
}

/** Return the start of each delay's row in the cells; -1 outside the frame. */
function computeRowStarts({ low, high }: Frame, { width, height }: Grid): Int32Array {
  const rows = height / (high - low);
  return Int32Array.from({ length: Math.ceil(high) + 1 }, (_, delay) => {
    const row = Math.floor((delay - low) * rows);
    return row >= 0 && row < height ? row * width : -1;
  });
}

/** Count on a linear axis, the fast path while the view moves. */
function countLinear(into: Grid, starts: Int32Array, delays: Uint16Array, far: number, scale: number): number {
  const { width, cells } = into;
  let count = 0;
  for (let index = 0; index < delays.length; index += 1) {
    const start = starts[delays[index] as number] ?? -1;
    const column = Math.floor((far + index) * scale);
    if (start < 0 || column < 0 || column >= width) continue;
    cells[start + column] = (cells[start + column] as number) + 1;
    count += 1;
  }
  return count;
}

/** Add exact values to a grid and return how many were in the frame. */
export function paintExact(into: Grid, frame: Frame, exact: ExactChunk, metric: Metric = "count", modulus = 2): number {
  const { width, height, cells } = into;
  const far = distance(frame.view, exact.start);
  const first = Math.max(0, Math.ceil(-far));
  const end = Math.min(exact.delays.length, Math.ceil(frame.view.span - far));
  if (metric === "count" && !frame.log && first < end) {
    return countLinear(
      into,
      computeRowStarts(frame, into),
      exact.delays.subarray(first, end),
      far + first,
      width / frame.view.span,
    );
  }
  const [x, rows] = [toPixels(frame, width), height / (frame.high - frame.low)];
  const paint = createCellUpdate(metric, exact, modulus);
  let count = 0;
  for (let index = first; index < end; index += 1) {
    const column = Math.floor(x(far + index));
    const row = Math.floor(((exact.delays[index] as number) - frame.low) * rows);
    if (column < 0 || column >= width || row < 0 || row >= height) continue;
    const cell = row * width + column;
    cells[cell] = paint(cells[cell] as number, index);
    count += 1;
  }
  return count;
}

/** Columns of a job, with the counts of each delay. */
export interface Density {
  job: string;
  start: bigint;
  end: bigint;
  /** First number of each column, relative to start. */
  offset: Float64Array;
  count: Float64Array;
  /** Entries first[j] to first[j + 1] - 1 belong to column j. */
  first: Uint32Array;
  delay: Uint16Array;
  times: Float64Array;
  least: number;
  greatest: number;
}

interface ColumnsResult {
  start: (number | string)[];
  count: (number | string)[];
  density: [number, number | string][][];
}

interface Packed {
  offset: Float64Array;
  first: Uint32Array;
  delay: Uint16Array;
  count: Float64Array;
}

/** Parse the response of GET /api/jobs/{id}/density.bin. */
export function parseBinary(job: string, data: ArrayBuffer): Density {
  const { facts, columns } = unpack(data);
  const { offset, first, delay, count } = columns as unknown as Packed;
  return createDensity(job, BigInt(facts.start as string), offset, first, delay, count);
}

/** Parse the columns of a partial result. */
export function parseResult(job: string, columns: ColumnsResult): Density | undefined {
  if (!columns.start.length || !columns.density) return undefined;
  const start = BigInt(columns.start[0] as string);
  const offset = Float64Array.from(columns.start, (each) => Number(BigInt(each) - start));
  const first = new Uint32Array(offset.length + 1);
  for (const [index, histogram] of columns.density.entries())
    first[index + 1] = (first[index] as number) + histogram.length;
  const entries = columns.density.flat();
  const delay = Uint16Array.from(entries, ([each]) => each);
  return createDensity(
    job,
    start,
    offset,
    first,
    delay,
    Float64Array.from(entries, ([, times]) => Number(times)),
  );
}

function createDensity(
  job: string,
  start: bigint,
  offset: Float64Array,
  first: Uint32Array,
  delay: Uint16Array,
  times: Float64Array,
): Density {
  const count = new Float64Array(offset.length);
  let [min, greatest] = [Infinity, 0];
  for (let column = 0; column < offset.length; column += 1) {
    for (let entry = first[column] as number; entry < (first[column + 1] as number); entry += 1) {
      count[column] = (count[column] as number) + (times[entry] as number);
      min = Math.min(min, delay[entry] as number);
      greatest = Math.max(greatest, delay[entry] as number);
    }
  }
  const last = offset.length - 1;
  const end = start + BigInt((offset[last] as number) + (count[last] as number));
  return { job, start, end, offset, count, first, delay, times, least: min, greatest };
}

/** Return the mean number of values per column. */
export function coarseness({ start, end, offset }: Density): number {
  return Number(end - start) / Math.max(1, offset.length);
}

/** Return the start and end of column j, relative to the left edge. */
function columnEdges(density: Density, far: number, column: number): [number, number] {
  const from = density.offset[column] as number;
  return [far + from, far + from + (density.count[column] as number)];
}

/**
 * Add the parts of a density that no finer source covers, and return the new coverage. A column wider than a pixel is
 * spread evenly, so cells may contain fractions; a column wider than `widest` pixels is omitted.
 */
export function paintDensity(
  into: Grid,
  frame: Frame,
  density: Density,
  covered: CoveredRanges = [],
  widest = Infinity,
): CoveredRanges {
  const far = distance(frame.view, density.start);
  const x = toPixels(frame, into.width);
  const drawn: [number, number][] = [];
  for (let column = 0; column < density.offset.length; column += 1) {
    const [from, to] = columnEdges(density, far, column);
    if (to <= 0 || from >= frame.view.span || x(to) - x(from) > widest) continue;
    for (const [begin, end] of uncoveredParts(covered, from, to)) {
      paintColumn(into, frame, density, column, [x(begin), x(end)], (end - begin) / (to - from));
      drawn.push([begin, end]);
    }
  }
  return drawn.length ? joinRanges(covered, drawn) : covered;
}

/** Add a share of a column's numbers, spread over the pixels between two positions. */
function paintColumn(
  { width, height, cells }: Grid,
  { low, high }: Frame,
  { first, delay, times }: Density,
  column: number,
  [from, to]: readonly [number, number],
  share: number,
): void {
  const rows = height / (high - low);
  const left = Math.floor(from);
  const right = Math.max(left + 1, Math.floor(to));
  for (let entry = first[column] as number; entry < (first[column + 1] as number); entry += 1) {
    const row = Math.floor(((delay[entry] as number) - low) * rows);
    if (row < 0 || row >= height) continue;
    const add = ((times[entry] as number) * share) / (right - left);
    for (let pixel = Math.max(0, left); pixel < Math.min(width, right); pixel += 1) {
      const cell = row * width + pixel;
      cells[cell] = (cells[cell] as number) + add;
    }
  }
}

/** Return how a sampled number changes its cell. */
function createSampleUpdate(
  metric: Metric,
  { weight, bits, rest }: Sample,
  modulus: number,
): (old: number, at: number) => number {
  if (metric === "count") return (old, at) => old + (weight[at] as number);
  if (metric === "peak") return (old, at) => Math.max(old, bits[at] as number);
  return (old, at) => {
    const own = ((rest[at] as number) % modulus) + 1;
    return old === 0 || old === own ? own : MIXED_RESIDUES;
  };
}

/**
 * Add the sampled numbers that no finer source covers, weighted by the numbers that they represent, and return their
 * count.
 */
export function paintSample(
  { width, height, cells }: Grid,
  frame: Frame,
  sample: Sample,
  covered: CoveredRanges = [],
  metric: Metric = "count",
  modulus = 2,
): number {
  const far = distance(frame.view, sample.range.first);
  const [x, rows] = [toPixels(frame, width), height / (frame.high - frame.low)];
  const paint = createSampleUpdate(metric, sample, modulus);
  let [part, count] = [0, 0];
  for (let index = 0; index < sample.distance.length; index += 1) {
    const at = far + (sample.distance[index] as number);
    while (part < covered.length && (covered[part] as readonly [number, number])[1] <= at) part += 1;
    if (part < covered.length && (covered[part] as readonly [number, number])[0] <= at) continue;
    const column = Math.floor(x(at));
    const row = Math.floor(((sample.delays[index] as number) - frame.low) * rows);
    if (column < 0 || column >= width || row < 0 || row >= height) continue;
    const cell = row * width + column;
    cells[cell] = paint(cells[cell] as number, index);
    count += 1;
  }
  return count;
}

/** Number, minimum and maximum of the nonempty cells; 0 for none. */
export interface GridExtent {
  count: number;
  min: number;
  max: number;
}

/** Compute the extent in one pass by index, which is fast even before the code is compiled. */
export function computeExtent({ cells }: Grid): GridExtent {
  let [lit, min, greatest] = [0, Infinity, 0];
  for (let cell = 0; cell < cells.length; cell += 1) {
    const value = cells[cell] as number;
    if (value <= 0) continue;
    lit += 1;
    if (value < min) min = value;
    if (value > greatest) greatest = value;
  }
  return { count: lit, min: lit ? min : 0, max: greatest };
}

/** Enlarge single pixels to marks of `by` x `by` pixels where space is free. */
export function enlargeMarks({ width, height, cells }: Grid, by: number): Grid {
  const wide = createGrid(width, height);
  wide.cells.set(cells);
  for (let cell = 0; cell < cells.length; cell += 1) {
    const value = cells[cell] as number;
    if (value > 0) enlargeMark(wide, cells, Math.floor(cell / width), cell % width, value, by);
  }
  return wide;
}

function enlargeMark(
  { width, height, cells: into }: Grid,
  from: Float32Array,
  row: number,
  column: number,
  value: number,
  by: number,
): void {
  for (let up = row; up < Math.min(height, row + by); up += 1) {
    for (let right = column; right < Math.min(width, column + by); right += 1) {
      const cell = up * width + right;
      if (from[cell] === 0 && value > (into[cell] as number)) into[cell] = value;
    }
  }
}

export type Histogram = Map<number, number>;

/** Count the delays of exact values in [first, end). */
export function countExact(into: Histogram, exact: ExactChunk, first: bigint, end: bigint): Histogram {
  const from = Math.max(0, Number(first - exact.start));
  const to = Math.min(exact.delays.length, Number(end - exact.start));
  for (let index = from; index < to; index += 1) {
    const delay = exact.delays[index] as number;
    into.set(delay, (into.get(delay) ?? 0) + 1);
  }
  return into;
}

/** Count the delays of complete columns in [first, end), and return their range. */
export function countColumns(
  density: Density,
  first: bigint,
  end: bigint,
): { histogram: Histogram; first: bigint; end: bigint } {
  const histogram: Histogram = new Map();
  let [from, to] = [end, first];
  for (let column = 0; column < density.offset.length; column += 1) {
    const begin = density.start + BigInt(density.offset[column] as number);
    if (begin < first || begin >= end) continue;
    const over = begin + BigInt(density.count[column] as number);
    if (begin < from) from = begin;
    if (over > to) to = over;
    for (let entry = density.first[column] as number; entry < (density.first[column + 1] as number); entry += 1) {
      const delay = density.delay[entry] as number;
      histogram.set(delay, (histogram.get(delay) ?? 0) + (density.times[entry] as number));
    }
  }
  return { histogram, first: from, end: to };
}
