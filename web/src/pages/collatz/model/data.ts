/** Known values: exact ones computed in this page, and columns from jobs. */

import { signal } from "@preact/signals";
import { requestDelays, requestSample } from "./client";
import { coarseness, countColumns, countExact, type Density, type ExactChunk, type Histogram } from "./layers";
import type { Sample } from "./sample";
import { CHUNK, CHUNK_BITS, overlappingChunks, type Range } from "./view";
import { messageOf } from "../../../lib/errors";

/** Maximum number of values in a window that the page computes itself. */
export const MAX_EXACT = 2 ** 20;
/** Maximum number of cached chunks of 64 Ki numbers, 4 bytes each. */
const MAX_CHUNKS = 64;
/** Maximum number of jobs whose columns are cached. */
const MAX_DENSITIES = 24;

/** Sizes of successive samples of a range. */
export const SAMPLE_SIZES = [20_000, 80_000, 320_000];
/** Duration in milliseconds of a sample after which no larger sample is taken. */
const SLOW_SAMPLE_MS = 500;
const MAX_SAMPLES = 3;

const cache = new Map<bigint, ExactChunk>();
const pending = new Set<bigint>();
let requestedChunks: bigint[] = [];
/** The current range, and the number of samples taken from it. */
let target = { key: "", range: { first: 1n, end: 1n }, log: false, round: 0 };
/** Samples, newest first. */
let samples: readonly Sample[] = [];
let isBusy = false;

/** Counter of all new data, which pictures read. */
export const dataVersion = signal(0);
/** Number of values computed by this page since it was loaded. */
export const computedCount = signal(0);
/** Error message of the web worker. */
export const workerError = signal("");
export const densities = signal<readonly Density[]>([]);

/** Return the available chunks of a range in order. */
export function getExact(range: Range): ExactChunk[] {
  return overlappingChunks(range).flatMap((index) => cache.get(index) ?? []);
}

/** Return True if every number of a range is known exactly. */
export function isExact(range: Range): boolean {
  return (
    Number(range.end - range.first) <= 2 * MAX_EXACT && overlappingChunks(range).every((index) => cache.has(index))
  );
}

/** Compute missing values of a range: first a sample, then every number or larger samples. */
export function requestValues(range: Range, log = false): void {
  const key = `${range.first} ${range.end} ${log}`;
  if (key !== target.key) target = { key, range, log, round: 0 };
  requestedChunks = [];
  if (Number(range.end - range.first) <= MAX_EXACT) {
    const all = overlappingChunks(range);
    const middle = (all.length - 1) / 2;
    const nearest = all
      .map((index, position) => ({ index, off: Math.abs(position - middle) }))
      .sort((one, other) => one.off - other.off);
    for (const { index } of nearest) markRecent(index);
    requestedChunks = nearest.map(({ index }) => index).filter((index) => !cache.has(index) && !pending.has(index));
  }
  void runTasks();
}

function markRecent(index: bigint): void {
  const chunk = cache.get(index);
  if (!chunk) return;
  cache.delete(index);
  cache.set(index, chunk);
}

/** Return the next computation: a first sample, then exact values, then larger samples. */
function nextTask(): Promise<void> | undefined {
  const { range, round } = target;
  const isSmall = Number(range.end - range.first) <= MAX_EXACT;
  if (round === 0 && !isExact(range)) return takeSample();
  const index = requestedChunks.shift();
  if (index !== undefined) return computeChunk(index);
  return isSmall || round >= SAMPLE_SIZES.length ? undefined : takeSample();
}

async function runTasks(): Promise<void> {
  if (isBusy) return;
  isBusy = true;
  try {
    for (let next = nextTask(); next; next = nextTask()) await next;
    workerError.value = "";
  } catch (error) {
    [requestedChunks, target] = [[], { ...target, round: SAMPLE_SIZES.length }];
    workerError.value = messageOf(error);
  }
  isBusy = false;
}

async function takeSample(): Promise<void> {
  const [requested, startedAt] = [target, performance.now()];
  const sample = await requestSample(requested.range, SAMPLE_SIZES[requested.round] as number, requested.log);
  requested.round = performance.now() - startedAt > SLOW_SAMPLE_MS ? SAMPLE_SIZES.length : requested.round + 1;
  // while the view moves, the previous sample covers the rest
  samples = [sample, ...samples.filter((each) => !isWithin(each.range, sample.range))].slice(0, MAX_SAMPLES);
  dataVersion.value = dataVersion.peek() + 1;
}

function isWithin(inner: Range, outer: Range): boolean {
  return inner.first >= outer.first && inner.end <= outer.end;
}

/** Return the samples that overlap a range, newest first. */
export function findSamples({ first, end }: Range): Sample[] {
  return samples.filter(({ range }) => range.first < end && first < range.end);
}

/** Return the sample of a range; undefined if there is none. */
export function findSample(range: Range): Sample | undefined {
  return samples.find((each) => isWithin(range, each.range));
}

async function computeChunk(index: bigint): Promise<void> {
  const base = index << BigInt(CHUNK_BITS);
  const start = base > 0n ? base : 1n;
  pending.add(index);
  try {
    cache.set(index, await requestDelays(start, Number(base + BigInt(CHUNK) - start)));
  } finally {
    pending.delete(index);
  }
  for (const old of [...cache.keys()].slice(0, -MAX_CHUNKS)) cache.delete(old);
  computedCount.value = computedCount.peek() + CHUNK;
  dataVersion.value = dataVersion.peek() + 1;
}

/** Store a job's columns, replacing older ones. */
export function storeDensity(density: Density): void {
  const others = densities.peek().filter((each) => each.job !== density.job);
  densities.value = [...others, density].slice(-MAX_DENSITIES);
  dataVersion.value = dataVersion.peek() + 1;
}

/** Forget the columns of jobs and return them. */
export function forgetDensities(): readonly Density[] {
  const previous = densities.peek();
  densities.value = [];
  dataVersion.value = dataVersion.peek() + 1;
  return previous;
}

export function restoreDensities(before: readonly Density[]): void {
  densities.value = before;
  dataVersion.value = dataVersion.peek() + 1;
}

/** Return the columns that overlap a range, coarsest first. */
export function findDensities({ first, end }: Range): Density[] {
  const overlapping = densities.value.filter((each) => each.start < end && first < each.end);
  return overlapping.sort((one, other) => coarseness(other) - coarseness(one));
}

export interface CountedHistogram {
  histogram: Histogram;
  /** Range of counted numbers. */
  range: Range;
  source: "exact" | "columns" | "sample" | "none";
  /** Number of sampled numbers. */
  sampleSize?: number;
}

/** Count the delays of a range from exact values, else from columns of the finest job, else from a sample. */
export function countHistogram(range: Range): CountedHistogram {
  if (isExact(range)) {
    const histogram: Histogram = new Map();
    for (const exact of getExact(range)) countExact(histogram, exact, range.first, range.end);
    return { histogram, range, source: "exact" };
  }
  for (const density of findDensities(range).reverse()) {
    const { histogram, first, end } = countColumns(density, range.first, range.end);
    if (histogram.size) return { histogram, range: { first, end }, source: "columns" };
  }
  const one = findSample(range);
  return one ? estimateHistogram(one, range) : { histogram: new Map(), range, source: "none" };
}

/** Estimate the delays of a range, weighting each sampled number. */
function estimateHistogram(from: Sample, range: Range): CountedHistogram {
  const histogram: Histogram = new Map();
  const [low, high] = [range.first, range.end].map((n) => Number(n - from.range.first)) as [number, number];
  let [sampleSize, sum] = [0, 0];
  for (const [index, far] of from.distance.entries()) {
    if (far < low || far >= high) continue;
    const delay = from.delays[index] as number;
    histogram.set(delay, (histogram.get(delay) ?? 0) + (from.weight[index] as number));
    sum += from.weight[index] as number;
    sampleSize += 1;
  }
  // strata extend beyond the ends of the range
  for (const [delay, times] of histogram) histogram.set(delay, (times * (high - low)) / sum);
  return { histogram, range, source: sampleSize ? "sample" : "none", sampleSize };
}
