/**
 * Drawing of any time window of a trace at any width, in time that depends on the pixels and not on the slices.
 *
 * Prefix sums over the slices provide the share of each pixel during which a core was busy, stealing or blocked. A grid
 * finds the slice at a time without searching the whole core. Slices narrower than a pixel therefore contribute a share
 * of its color. If a pixel contains several bins of the grid, the sums at their edges are used: the result is off by at
 * most a 16th of a pixel, and no time is lost or counted twice.
 */

import { BLOCKED, RUN, STEAL, STOLEN, countUpTo, type Trace } from "./model";

/** Color modes of busy time. */
export const MODES = ["depth", "stolen", "wait"] as const;
export type Mode = (typeof MODES)[number];

/** Rows of sums: time, and busy time multiplied by the mode's value. */
export const BUSY_TIME = 0,
  STEAL_TIME = 1,
  BLOCKED_TIME = 2;
const FIRST_MODE_ROW = 3;
const ROW_COUNT = FIRST_MODE_ROW + MODES.length;

export interface TraceIndex {
  /** ROWS sums before each slice of all cores, and after the last slice. */
  sums: Float64Array;
  /** The same sums at the edges of the grid's bins, by core. */
  edges: Float64Array;
  /** grid[c * (bins + 1) + b] is the number of slices of core c that started before bin b. */
  grid: Uint32Array;
  bins: number;
  maxDepth: number;
  /** The longest wait. */
  maxWait: number;
  /** Births, ends and depths of the threads, ordered by birth. */
  births: Float64Array;
  ends: Float64Array;
  depthReached: Uint8Array;
  /** Slices of all cores ordered by start. */
  order: Uint32Array;
}

/** Convert a wait to a logarithmic level: µs 0 .. 10^6 become 0 .. 1. */
export function waitLevel(wait: number): number {
  return Math.min(1, Math.log10(1 + wait) / 6);
}

export function buildIndex(trace: Trace): TraceIndex {
  const { start, kind, flags, thread, wait, threads, cores, lanes } = trace;
  const sums = new Float64Array((start.length + 1) * ROW_COUNT);
  const bins = Math.max(1, Math.min(65_536, 2 ** Math.ceil(Math.log2(start.length / cores / 2 + 1))));
  const index: TraceIndex = {
    sums,
    bins,
    edges: new Float64Array(cores * (bins + 1) * ROW_COUNT),
    grid: new Uint32Array(cores * (bins + 1)),
    maxDepth: threads.depth.reduce((max, each) => Math.max(max, each), 0),
    maxWait: wait.reduce((max, each) => Math.max(max, each), 0),
    births: threads.readyAt.slice().sort(),
    ends: threads.endedAt.slice().sort(),
    depthReached: new Uint8Array(threads.readyAt.length),
    order: Uint32Array.from(start.keys()).sort(
      (left, right) => (start[left] as number) - (start[right] as number) || left - right,
    ),
  };
  for (let slice = 0; slice < start.length; slice += 1) {
    const time = (trace.end[slice] as number) - (start[slice] as number);
    const what = kind[slice] as number;
    const busy = what === STEAL || what === BLOCKED ? 0 : time;
    const values = [
      busy,
      what === STEAL ? time : 0,
      what === BLOCKED ? time : 0,
      busy && busy * (threads.depth[thread[slice] as number] as number),
      what === RUN && (flags[slice] as number) & STOLEN ? time : 0,
      busy * waitLevel(wait[slice] as number),
    ];
    for (let row = 0; row < ROW_COUNT; row += 1)
      sums[(slice + 1) * ROW_COUNT + row] = (sums[slice * ROW_COUNT + row] as number) + (values[row] as number);
  }
  for (let core = 0; core < cores; core += 1)
    fillGrid(trace, index, core, lanes[core] as number, lanes[core + 1] as number);
  fillReached(trace, index);
  return index;
}

function fillGrid(trace: Trace, index: TraceIndex, core: number, from: number, to: number): void {
  const { grid, bins, edges } = index;
  let slice = from;
  for (let bin = 0; bin <= bins; bin += 1) {
    const edge = (bin * trace.until) / bins;
    while (slice < to && (trace.start[slice] as number) < edge) slice += 1;
    const position = core * (bins + 1) + bin;
    grid[position] = slice;
    for (let row = 0; row < ROW_COUNT; row += 1)
      edges[position * ROW_COUNT + row] = sumBefore(trace, index, row, slice - 1, core, edge);
  }
}

function fillReached({ threads }: Trace, { depthReached: reached }: TraceIndex): void {
  const order = Uint32Array.from(threads.readyAt.keys()).sort(
    (left, right) => (threads.readyAt[left] as number) - (threads.readyAt[right] as number),
  );
  let max = 0;
  for (const [position, thread] of order.entries()) {
    max = Math.max(max, threads.depth[thread] as number);
    reached[position] = max;
  }
}

/** Return the last slice of a core that started at or before a time, or the index before the core's first slice. */
export function lastStartedSlice(trace: Trace, index: TraceIndex, core: number, moment: number): number {
  const from = trace.lanes[core] as number;
  const to = trace.lanes[core + 1] as number;
  const bin = Math.floor((moment / trace.until) * index.bins);
  if (bin < 0) return from - 1;
  if (bin >= index.bins) return from + countUpTo(trace.start, moment, from, to) - 1;
  const base = core * (index.bins + 1) + bin;
  const low = index.grid[base] as number;
  // Rounding can place a start next to its bin.
  const high = Math.min(to, (index.grid[base + 1] as number) + 1);
  return low + countUpTo(trace.start, moment, low, high) - 1;
}

/** Return a row's sum on a core before a time. Only differences of sums are meaningful. */
export function sumBefore(
  trace: Trace,
  { sums }: TraceIndex,
  row: number,
  slice: number,
  core: number,
  moment: number,
): number {
  const after = sums[(slice + 1) * ROW_COUNT + row] as number;
  if (slice < (trace.lanes[core] as number)) return after;
  const end = trace.end[slice] as number;
  if (moment >= end) return after;
  const begin = trace.start[slice] as number;
  const low = sums[slice * ROW_COUNT + row] as number;
  return low + ((after - low) * (moment - begin)) / (end - begin);
}

export interface PixelShares {
  busy: Float32Array;
  steal: Float32Array;
  blocked: Float32Array;
  /** Mean of the mode's value over the busy time. */
  level: Float32Array;
}

export function createPixelShares(width: number): PixelShares {
  const row = () => new Float32Array(width);
  return { busy: row(), steal: row(), blocked: row(), level: row() };
}

/** Number of bins per pixel from which their edges are used. */
const MIN_BINS_PER_PIXEL = 4;

/** Write the four sums at the edges of a core's pixels to `rows`. */
function sampleSums(
  trace: Trace,
  index: TraceIndex,
  core: number,
  t0: number,
  step: number,
  modeRow: number,
  rows: Float64Array,
): void {
  const coarse = (step / trace.until) * index.bins >= MIN_BINS_PER_PIXEL;
  const last = (trace.lanes[core + 1] as number) - 1;
  let slice = coarse ? 0 : lastStartedSlice(trace, index, core, t0);
  for (let position = 0; position < rows.length; position += 4) {
    const edge = t0 + (position / 4) * step;
    if (coarse) {
      interpolateSums(trace, index, core, edge, modeRow, rows, position);
      continue;
    }
    if (slice < last && (trace.start[slice + 1] as number) <= edge) slice = lastStartedSlice(trace, index, core, edge);
    for (let row = 0; row < 4; row += 1)
      rows[position + row] = sumBefore(trace, index, row < FIRST_MODE_ROW ? row : modeRow, slice, core, edge);
  }
}

/** Interpolate the sums at a time between the edges of its bin. */
function interpolateSums(
  trace: Trace,
  { edges, bins }: TraceIndex,
  core: number,
  moment: number,
  modeRow: number,
  rows: Float64Array,
  position: number,
): void {
  const at = Math.max(0, Math.min(bins, (moment / trace.until) * bins));
  const bin = Math.min(bins - 1, Math.floor(at));
  const low = (core * (bins + 1) + bin) * ROW_COUNT;
  for (let row = 0; row < 4; row += 1) {
    const from = low + (row < FIRST_MODE_ROW ? row : modeRow);
    const value = edges[from] as number;
    rows[position + row] = value + ((edges[from + ROW_COUNT] as number) - value) * (at - bin);
  }
}

let sumBuffer = new Float64Array();

/** Write the shares of one core's pixels between t0 and t1 to `out`. */
export function computePixelShares(
  trace: Trace,
  index: TraceIndex,
  core: number,
  t0: number,
  t1: number,
  mode: Mode,
  out: PixelShares,
): void {
  const width = out.busy.length;
  const step = (t1 - t0) / width;
  if (sumBuffer.length !== 4 * (width + 1)) sumBuffer = new Float64Array(4 * (width + 1));
  const rows = sumBuffer;
  sampleSums(trace, index, core, t0, step, FIRST_MODE_ROW + MODES.indexOf(mode), rows);
  for (let pixel = 0, at = 0; pixel < width; pixel += 1, at += 4) {
    const busy = (rows[at + 4] as number) - (rows[at] as number);
    out.busy[pixel] = busy / step;
    out.steal[pixel] = ((rows[at + 5] as number) - (rows[at + 1] as number)) / step;
    out.blocked[pixel] = ((rows[at + 6] as number) - (rows[at + 2] as number)) / step;
    out.level[pixel] = busy > 0 ? ((rows[at + 7] as number) - (rows[at + 3] as number)) / busy : 0;
  }
}

/** Return the mean number of busy cores in each pixel between t0 and t1. */
export function countBusyCores(trace: Trace, index: TraceIndex, t0: number, t1: number, width: number): Float32Array {
  const shares = new Float32Array(width);
  const step = (t1 - t0) / width;
  const rows = new Float64Array(4 * (width + 1));
  for (let core = 0; core < trace.cores; core += 1) {
    sampleSums(trace, index, core, t0, step, FIRST_MODE_ROW, rows);
    for (let pixel = 0; pixel < width; pixel += 1) {
      shares[pixel] =
        (shares[pixel] as number) + ((rows[4 * pixel + 4] as number) - (rows[4 * pixel] as number)) / step;
    }
  }
  return shares;
}
