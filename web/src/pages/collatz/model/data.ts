/** Known values of the numbers: exact ones computed in this page, and columns from jobs. */

import { signal } from "@preact/signals";
import { delays, sampled } from "./client";
import { coarseness, countColumns, countExact, type Density, type Exact, type Histogram } from "./layers";
import type { Sample } from "./sample";
import { CHUNK, CHUNK_BITS, chunks, type Range } from "./view";
import { messageOf } from "../../../lib/errors";

/** Numbers in a window that the page computes by itself, at most. */
export const EXACT_MOST = 2 ** 20;
/** Chunks that are kept: 64 K numbers each, 4 bytes a number. */
const KEEP_CHUNKS = 64;
/** Jobs whose columns are kept, at most. */
const KEEP_DENSITIES = 24;

/** Numbers of the samples of a range, one after the other. */
export const ROUNDS = [20_000, 80_000, 320_000];
/** After a sample that took so long, none is taken that takes four times as long. */
const SLOW_MS = 500;
const KEEP_SAMPLES = 3;

const cache = new Map<bigint, Exact>();
const pending = new Set<bigint>();
let wanted: bigint[] = [];
/** The range that is wanted now, and how many samples of it were taken. */
let aim = { key: "", range: { first: 1n, end: 1n }, log: false, round: 0 };
/** The newest first. */
let samples: readonly Sample[] = [];
let busy = false;

/** Grows with everything that is learnt: pictures read it. */
export const learnt = signal(0);
/** Numbers that this page computed since it was loaded. */
export const computedHere = signal(0);
/** Why the page's worker failed. */
export const broken = signal("");
export const densities = signal<readonly Density[]>([]);

/** Chunks of a range that are there, in order. */
export function exactOf(range: Range): Exact[] {
  return chunks(range).flatMap((index) => cache.get(index) ?? []);
}

/** True when every number of a range is known exactly. */
export function isExact(range: Range): boolean {
  return Number(range.end - range.first) <= 2 * EXACT_MOST && chunks(range).every((index) => cache.has(index));
}

/** Computes what is missing of a range: a sample at once, then every number, or larger samples where they are many. */
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

/** What is to be computed next: how the whole looks, then every number, then how it looks more precisely. */
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
  // the one before shows what the new one does not reach, while the view moves
  samples = [found, ...samples.filter((each) => !within(each.range, found.range))].slice(0, KEEP_SAMPLES);
  learnt.value = learnt.peek() + 1;
}

function within(inner: Range, outer: Range): boolean {
  return inner.first >= outer.first && inner.end <= outer.end;
}

/** Samples that touch a range, the newest first. */
export function samplesOf({ first, end }: Range): Sample[] {
  return samples.filter(({ range }) => range.first < end && first < range.end);
}

/** Numbers of the sample of a range, and how many it spreads over; undefined before there is one. */
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

/** Takes a job's columns, in place of those it had before. */
export function learn(density: Density): void {
  const others = densities.peek().filter((each) => each.job !== density.job);
  densities.value = [...others, density].slice(-KEEP_DENSITIES);
  learnt.value = learnt.peek() + 1;
}

/** Forgets the columns of jobs; gives back what was known. */
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

/** Columns that touch a range, the coarsest first. */
export function densitiesOf({ first, end }: Range): Density[] {
  const overlapping = densities.value.filter((each) => each.start < end && first < each.end);
  return overlapping.sort((one, other) => coarseness(other) - coarseness(one));
}

export interface Counted {
  histogram: Histogram;
  /** The numbers that were counted. */
  range: Range;
  source: "exact" | "columns" | "sample" | "none";
  /** Numbers that a sample looked at. */
  looked?: number;
}

/** Delays of a range: of every number where they are exact, else of whole columns of the finest job, else a sample. */
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

/** Delays of a range, each number of a sample counted as often as numbers it stands for. */
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
  // strata overhang the range at its ends
  for (const [delay, times] of histogram) histogram.set(delay, (times * (high - low)) / sum);
  return { histogram, range, source: looked ? "sample" : "none", looked };
}
