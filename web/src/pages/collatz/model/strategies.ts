/** Strategies that select the next window of numbers. Pure functions: the same seed yields the same windows. */

import type { Range } from "./view";

export const STRATEGIES = ["sequential", "targeted", "random", "adaptive"] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** Description of each strategy for the form. */
export const MEANING: Record<Strategy, string> = {
  sequential: "the whole range from its start, as one job",
  targeted: "windows around numbers related to the records so far: n + 1, 2n, 4n and about (2n - 1) / 3",
  random: "windows drawn evenly from the range",
  adaptive: "half of the windows near the longest recent delays, half drawn evenly",
};

export interface Setting {
  range: Range;
  /** Size of a window. */
  size: number;
  seed: number;
}

/** Facts that determine the next window. */
export interface Knowledge {
  /** Windows that were already selected. */
  taken: readonly Range[];
  /** Numbers with long delays, longest first. */
  best: readonly bigint[];
}

/** Return a 32-bit random number generator (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return a number in [0, below) from 96 random bits. */
function drawn(below: bigint, next: () => number): bigint {
  let bits = 0n;
  for (let word = 0; word < 3; word += 1) bits = (bits << 32n) | BigInt(Math.floor(next() * 2 ** 32));
  return (bits * below) >> 96n;
}

/** Return a window of the range that starts at a multiple of its size if possible. */
function windowAt(n: bigint, { range, size }: Setting): Range {
  const wide = BigInt(size);
  const start = (n / wide) * wide;
  const first = start > range.first ? start : range.first;
  const end = start + wide < range.end ? start + wide : range.end;
  return { first, end };
}

/** Return numbers whose delays are related to that of n. */
export function relatives(n: bigint): bigint[] {
  return [n, n + 1n, 2n * n, 4n * n, (2n * n - 1n) / 3n, (4n * n - 1n) / 3n, n - 1n];
}

function fresh(window: Range, { taken }: Knowledge): boolean {
  return window.first < window.end && !taken.some(({ first, end }) => window.first < end && first < window.end);
}

function evenly(setting: Setting, known: Knowledge, next: () => number): Range | undefined {
  const { first, end } = setting.range;
  for (let tries = 0; tries < 100; tries += 1) {
    const window = windowAt(first + drawn(end - first, next), setting);
    if (fresh(window, known)) return window;
  }
  return undefined;
}

/** Return windows around numbers, nearest relatives first. */
function near(setting: Setting, known: Knowledge): Range | undefined {
  const { first, end } = setting.range;
  for (const n of known.best) {
    for (const relative of relatives(n)) {
      if (relative < first || relative >= end) continue;
      const window = windowAt(relative, setting);
      if (fresh(window, known)) return window;
    }
  }
  return undefined;
}

/** Return windows next to those with the longest delays. */
function beside(setting: Setting, known: Knowledge): Range | undefined {
  const wide = BigInt(setting.size);
  for (const n of known.best) {
    for (const side of [n + wide, n - wide]) {
      if (side < setting.range.first || side >= setting.range.end) continue;
      const window = windowAt(side, setting);
      if (fresh(window, known)) return window;
    }
  }
  return undefined;
}

/** Return the next window, or undefined if the strategy has no more windows. */
export function nextWindow(strategy: Strategy, setting: Setting, known: Knowledge): Range | undefined {
  const next = random(setting.seed + 7919 * known.taken.length);
  if (strategy === "sequential") return known.taken.length ? undefined : setting.range;
  if (strategy === "targeted") return near(setting, known) ?? evenly(setting, known, next);
  const follows = strategy === "adaptive" && known.taken.length % 2 === 1;
  return (follows ? beside(setting, known) : undefined) ?? evenly(setting, known, next);
}
