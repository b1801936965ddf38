/** Strategies that select the next window of numbers. Pure functions: the same seed yields the same windows. */

import type { Range } from "./view";

export const STRATEGIES = ["sequential", "targeted", "random", "adaptive"] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** Description of each strategy for the form. */
export const STRATEGY_TEXTS: Record<Strategy, string> = {
  sequential: "the whole range from its start, as one job",
  targeted: "windows around numbers related to the records so far: n + 1, 2n, 4n and about (2n - 1) / 3",
  random: "windows drawn evenly from the range",
  adaptive: "half of the windows near the longest recent delays, half drawn evenly",
};

export interface StrategySetting {
  range: Range;
  /** Size of a window. */
  size: number;
  seed: number;
}

/** Facts that determine the next window. */
export interface Knowledge {
  /** Windows that were already selected. */
  takenWindows: readonly Range[];
  /** Numbers with long delays, longest first. */
  best: readonly bigint[];
}

/** Return a 32-bit random number generator (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return a number in [0, below) from 96 random bits. */
function randomBelow(below: bigint, next: () => number): bigint {
  let bits = 0n;
  for (let word = 0; word < 3; word += 1) bits = (bits << 32n) | BigInt(Math.floor(next() * 2 ** 32));
  return (bits * below) >> 96n;
}

/** Return a window of the range that starts at a multiple of its size if possible. */
function windowAt(n: bigint, { range, size }: StrategySetting): Range {
  const wide = BigInt(size);
  const start = (n / wide) * wide;
  const first = start > range.first ? start : range.first;
  const end = start + wide < range.end ? start + wide : range.end;
  return { first, end };
}

/** Return numbers whose delays are related to that of n. */
export function relatedNumbers(n: bigint): bigint[] {
  return [n, n + 1n, 2n * n, 4n * n, (2n * n - 1n) / 3n, (4n * n - 1n) / 3n, n - 1n];
}

function isNew(window: Range, { takenWindows: taken }: Knowledge): boolean {
  return window.first < window.end && !taken.some(({ first, end }) => window.first < end && first < window.end);
}

function nextRandom(setting: StrategySetting, known: Knowledge, next: () => number): Range | undefined {
  const { first, end } = setting.range;
  for (let tries = 0; tries < 100; tries += 1) {
    const window = windowAt(first + randomBelow(end - first, next), setting);
    if (isNew(window, known)) return window;
  }
  return undefined;
}

/** Return windows around numbers, nearest relatives first. */
function nextRelated(setting: StrategySetting, known: Knowledge): Range | undefined {
  const { first, end } = setting.range;
  for (const n of known.best) {
    for (const relative of relatedNumbers(n)) {
      if (relative < first || relative >= end) continue;
      const window = windowAt(relative, setting);
      if (isNew(window, known)) return window;
    }
  }
  return undefined;
}

/** Return windows next to those with the longest delays. */
function nextAdjacent(setting: StrategySetting, known: Knowledge): Range | undefined {
  const wide = BigInt(setting.size);
  for (const n of known.best) {
    for (const side of [n + wide, n - wide]) {
      if (side < setting.range.first || side >= setting.range.end) continue;
      const window = windowAt(side, setting);
      if (isNew(window, known)) return window;
    }
  }
  return undefined;
}

/** Return the next window, or undefined if the strategy has no more windows. */
export function nextWindow(strategy: Strategy, setting: StrategySetting, known: Knowledge): Range | undefined {
  const next = createRandom(setting.seed + 7919 * known.takenWindows.length);
  if (strategy === "sequential") return known.takenWindows.length ? undefined : setting.range;
  if (strategy === "targeted") return nextRelated(setting, known) ?? nextRandom(setting, known, next);
  const follows = strategy === "adaptive" && known.takenWindows.length % 2 === 1;
  return (follows ? nextAdjacent(setting, known) : undefined) ?? nextRandom(setting, known, next);
}
