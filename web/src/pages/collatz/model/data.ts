/** Known values of the numbers: exact ones computed in this page, and columns from jobs. */

import { signal } from "@preact/signals";
import { delays } from "./client";
import { coarseness, countColumns, countExact, type Density, type Exact, type Histogram } from "./layers";
import { CHUNK, CHUNK_BITS, chunks, type Range } from "./view";

/** Numbers in a window that the page computes by itself, at most. */
export const EXACT_MOST = 2 ** 20;
/** Chunks that are kept: 64 K numbers each, 4 bytes a number. */
const KEEP_CHUNKS = 64;
/** Jobs whose columns are kept, at most. */
const KEEP_DENSITIES = 24;

const cache = new Map<bigint, Exact>();
const pending = new Set<bigint>();
let wanted: bigint[] = [];
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

/** Computes what is missing of a range, the middle first; a later call replaces what was not begun. */
export function need(range: Range): void {
  if (Number(range.end - range.first) > EXACT_MOST) {
    wanted = [];
    return;
  }
  const all = chunks(range);
  const middle = (all.length - 1) / 2;
  const near = all
    .map((index, place) => ({ index, off: Math.abs(place - middle) }))
    .sort((one, other) => one.off - other.off);
  for (const { index } of near) touch(index);
  wanted = near.map(({ index }) => index).filter((index) => !cache.has(index) && !pending.has(index));
  void work();
}

function touch(index: bigint): void {
  const kept = cache.get(index);
  if (!kept) return;
  cache.delete(index);
  cache.set(index, kept);
}

async function work(): Promise<void> {
  if (busy) return;
  busy = true;
  try {
    for (let index = wanted.shift(); index !== undefined; index = wanted.shift()) await compute(index);
    broken.value = "";
  } catch (error) {
    wanted = [];
    broken.value = error instanceof Error ? error.message : String(error);
  }
  busy = false;
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
  source: "exact" | "columns" | "none";
}

/** Delays of a range: of every number where they are exact, else of the whole columns of the finest job. */
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
  return { histogram: new Map(), range, source: "none" };
}
