/** Known values: exact ones computed in this page, and columns from jobs. */

import { signal } from "@preact/signals";
import { delays, sampled } from "./client";
import { coarseness, countColumns, countExact, type Density, type Exact, type Histogram } from "./layers";
import type { Sample } from "./sample";
import { CHUNK, CHUNK_BITS, chunks, type Range } from "./view";
import { messageOf } from "../../../lib/errors";

/** Maximum number of values in a window that the page computes itself. */
export const EXACT_MOST = 2 ** 20;
/** Maximum number of cached chunks of 64 Ki numbers, 4 bytes each. */
const KEEP_CHUNKS = 64;
/** Maximum number of jobs whose columns are cached. */
const KEEP_DENSITIES = 24;

/** Sizes of successive samples of a range. */
export const ROUNDS = [20_000, 80_000, 320_000];
/** Duration in milliseconds of a sample after which no larger sample is taken. */
const SLOW_MS = 500;
const KEEP_SAMPLES = 3;

const cache = new Map<bigint, Exact>();
const pending = new Set<bigint>();
let wanted: bigint[] = [];
/** The current range, and the number of samples taken from it. */
let aim = { key: "", range: { first: 1n, end: 1n }, log: false, round: 0 };
/** Samples, newest first. */
let samples: readonly Sample[] = [];
let busy = false;

/** Counter of all new data, which pictures read. */
export const learnt = signal(0);
/** Number of values computed by this page since it was loaded. */
export const computedHere = signal(0);
/** Error message of the web worker. */
export const broken = signal("");
export const densities = signal<readonly Density[]>([]);

/** Return the available chunks of a range in order. */
export function exactOf(range: Range): Exact[] {
  return chunks(range).flatMap((index) => cache.get(index) ?? []);
}

/** Return True if every number of a range is known exactly. */
export function isExact(range: Range): boolean {
  return Number(range.end - range.first) <= 2 * EXACT_MOST && chunks(range).every((index) => cache.has(index));
}

/** Compute missing values of a range: first a sample, then every number or larger samples. */
export function need(range: Range, log = false): void {
  const key = `${range.first} ${range.end} ${log}`;
  if (key !== aim.key) aim = { key, range, log, round: 0 };
  wanted = [];
  if (Number(range.end - range.first) <= EXACT_MOST) {
    const all = chunks(range);
    const middle = (all.length - 1) / 2;
    const near = all
      .map((index, place) => ({ index, off: Math.abs(place - middle) }))
      .sort((one, other) => one.off - other.off);
    for (const { index } of near) touch(index);
    wanted = near.map(({ index }) => index).filter((index) => !cache.has(index) && !pending.has(index));
  }
  void work();
}

function touch(index: bigint): void {
  const kept = cache.get(index);
  if (!kept) return;
  cache.delete(index);
  cache.set(index, kept);
}

/** Return the next computation: a first sample, then exact values, then larger samples. */
function task(): Promise<void> | undefined {
  const { range, round } = aim;
  const few = Number(range.end - range.first) <= EXACT_MOST;
  if (round === 0 && !isExact(range)) return look();
  const index = wanted.shift();
  if (index !== undefined) return compute(index);
  return few || round >= ROUNDS.length ? undefined : look();
}

async function work(): Promise<void> {
  if (busy) return;
  busy = true;
  try {
    for (let next = task(); next; next = task()) await next;
    broken.value = "";
  } catch (error) {
    [wanted, aim] = [[], { ...aim, round: ROUNDS.length }];
    broken.value = messageOf(error);
  }
  busy = false;
}

async function look(): Promise<void> {
  const [asked, began] = [aim, performance.now()];
  const found = await sampled(asked.range, ROUNDS[asked.round] as number, asked.log);
  asked.round = performance.now() - began > SLOW_MS ? ROUNDS.length : asked.round + 1;
  // while the view moves, the previous sample covers the rest
  samples = [found, ...samples.filter((each) => !within(each.range, found.range))].slice(0, KEEP_SAMPLES);
  learnt.value = learnt.peek() + 1;
}

function within(inner: Range, outer: Range): boolean {
  return inner.first >= outer.first && inner.end <= outer.end;
}

/** Return the samples that overlap a range, newest first. */
export function samplesOf({ first, end }: Range): Sample[] {
  return samples.filter(({ range }) => range.first < end && first < range.end);
}

/** Return the sample of a range; undefined if there is none. */
export function sampleOf(range: Range): Sample | undefined {
  return samples.find((each) => within(range, each.range));
}

async function compute(index: bigint): Promise<void> {
  const base = index << BigInt(CHUNK_BITS);
  const start = base > 0n ? base : 1n;
  pending.add(index);
  try {
    cache.set(index, await delays(start, Number(base + BigInt(CHUNK) - start)));
  } finally {
    pending.delete(index);
  }
  for (const old of [...cache.keys()].slice(0, -KEEP_CHUNKS)) cache.delete(old);
  computedHere.value = computedHere.peek() + CHUNK;
  learnt.value = learnt.peek() + 1;
}

/** Store a job's columns, replacing older ones. */
export function learn(density: Density): void {
  const others = densities.peek().filter((each) => each.job !== density.job);
  densities.value = [...others, density].slice(-KEEP_DENSITIES);
  learnt.value = learnt.peek() + 1;
}

/** Forget the columns of jobs and return them. */
export function forgetAll(): readonly Density[] {
  const before = densities.peek();
  densities.value = [];
  learnt.value = learnt.peek() + 1;
  return before;
}

export function recall(before: readonly Density[]): void {
  densities.value = before;
  learnt.value = learnt.peek() + 1;
}

/** Return the columns that overlap a range, coarsest first. */
export function densitiesOf({ first, end }: Range): Density[] {
  const overlapping = densities.value.filter((each) => each.start < end && first < each.end);
  return overlapping.sort((one, other) => coarseness(other) - coarseness(one));
}

export interface Counted {
  histogram: Histogram;
  /** Range of counted numbers. */
  range: Range;
  source: "exact" | "columns" | "sample" | "none";
  /** Number of sampled numbers. */
  looked?: number;
}

/** Count the delays of a range from exact values, else from columns of the finest job, else from a sample. */
export function histogramOf(range: Range): Counted {
  if (isExact(range)) {
    const histogram: Histogram = new Map();
    for (const exact of exactOf(range)) countExact(histogram, exact, range.first, range.end);
    return { histogram, range, source: "exact" };
  }
  for (const density of densitiesOf(range).reverse()) {
    const { histogram, first, end } = countColumns(density, range.first, range.end);
    if (histogram.size) return { histogram, range: { first, end }, source: "columns" };
  }
  const one = sampleOf(range);
  return one ? estimated(one, range) : { histogram: new Map(), range, source: "none" };
}

/** Estimate the delays of a range, weighting each sampled number. */
function estimated(from: Sample, range: Range): Counted {
  const histogram: Histogram = new Map();
  const [low, high] = [range.first, range.end].map((n) => Number(n - from.range.first)) as [number, number];
  let [looked, sum] = [0, 0];
  for (const [place, far] of from.far.entries()) {
    if (far < low || far >= high) continue;
    const delay = from.delays[place] as number;
    histogram.set(delay, (histogram.get(delay) ?? 0) + (from.weight[place] as number));
    sum += from.weight[place] as number;
    looked += 1;
  }
  // strata extend beyond the ends of the range
  for (const [delay, times] of histogram) histogram.set(delay, (times * (high - low)) / sum);
  return { histogram, range, source: looked ? "sample" : "none", looked };
}
