/**
 * Numbers distributed evenly over a range, one per stratum, for a first picture before every number is computed. Strata
 * are on a fixed grid, so the sample does not change while the view moves. Pure functions.
 */

import { computeDelay } from "./delays";
import { log2 } from "./number";
import type { Range } from "./view";

export interface Sample {
  range: Range;
  /** True if the strata are even on a log axis. */
  isLog: boolean;
  /** Distance of each number from the first of the range, ascending. */
  distance: Float64Array;
  /** Number of values that each sampled number represents. */
  weight: Float64Array;
  delays: Uint16Array;
  /** Bits of the greatest value. */
  bits: Uint16Array;
  /** n mod CYCLE, from which n mod m follows for every m up to 8. */
  rest: Uint16Array;
}

/** Least common multiple of 1 to 8. */
export const CYCLE = 840;

type AddNumber = (n: number | bigint, weight: number) => void;

/** Return 32 hash bits of the stratum, the fineness of the grid, and the word's index. */
function hashWord(low: number, high: number, fineness: number, which: number): number {
  let mixed =
    low ^ Math.imul(high + 1, 0x9e3779b1) ^ Math.imul(fineness + 1, 0x85ebca6b) ^ Math.imul(which, 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** Return a fraction in [0, 1) with 53 bits; with fewer bits, all numbers of a wide stratum would be even. */
function randomFraction(stratum: number, fineness: number): number {
  const [low, high] = [stratum >>> 0, Math.floor(stratum / 2 ** 32)];
  return (hashWord(low, high, fineness, 0) * 2 ** 21 + (hashWord(low, high, fineness, 1) >>> 11)) / 2 ** 53;
}

/** Return a number in [0, limit) from 128 bits. */
function randomBelow(limit: bigint, stratum: bigint, fineness: number): bigint {
  const low = Number(stratum & 0xffffffffn);
  const high = Number((stratum >> 32n) & 0xffffffffn) ^ Number(stratum >> 64n);
  let bits = 0n;
  for (let which = 0; which < 4; which += 1) bits = (bits << 32n) | BigInt(hashWord(low, high, fineness, which));
  return (bits * limit) >> 128n;
}

/** Limit of exact doubles. */
const NARROW = 2n ** 53n;

/** Use strata of 2^k numbers. */
function sampleEvenly({ first, end }: Range, count: number, put: AddNumber): void {
  const max = (end - first) / BigInt(count);
  const k = max > 1n ? max.toString(2).length - 1 : 0;
  const last = (end - 1n) >> BigInt(k);
  if (end <= NARROW) {
    const wide = 2 ** k;
    for (let stratum = Math.floor(Number(first) / wide); stratum <= Number(last); stratum += 1)
      put(stratum * wide + Math.floor(randomFraction(stratum, k) * wide), wide);
    return;
  }
  for (let stratum = first >> BigInt(k); stratum <= last; stratum += 1n)
    put((stratum << BigInt(k)) + randomBelow(1n << BigInt(k), stratum, k), 2 ** k);
}

/** Return the smallest integer >= 2^place. */
function ceilPower(exponent: number): bigint {
  if (exponent < 52) return BigInt(Math.ceil(2 ** exponent));
  const excess = Math.floor(exponent) - 52;
  return BigInt(Math.ceil(2 ** (exponent - excess))) << BigInt(excess);
}

/** Use strata of equal ratios, with a power of two of them per octave. */
function sampleLogEvenly({ first, end }: Range, count: number, put: AddNumber): void {
  const [low, high] = [log2(first), log2(end)];
  const octave = 2 ** Math.max(0, Math.ceil(Math.log2(count / Math.max(2 ** -40, high - low))));
  for (let stratum = Math.floor(low * octave); stratum < high * octave; stratum += 1) {
    if ((stratum + 1) / octave < 52) {
      const [from, to] = [Math.ceil(2 ** (stratum / octave)), Math.ceil(2 ** ((stratum + 1) / octave))];
      if (from < to) put(from + Math.floor(randomFraction(stratum, octave) * (to - from)), to - from);
    } else {
      const [from, to] = [ceilPower(stratum / octave), ceilPower((stratum + 1) / octave)];
      if (from < to) put(from + randomBelow(to - from, BigInt(stratum), octave), Number(to - from));
    }
  }
}

/** Return between `count` and 2 `count` numbers of a range, or all its numbers if there are fewer. */
export function createSample(range: Range, count: number, log: boolean): Sample {
  const capacity = 2 * count + 200;
  const far = new Float64Array(capacity);
  const weight = new Float64Array(capacity);
  const [delays, bits, rest] = [new Uint16Array(capacity), new Uint16Array(capacity), new Uint16Array(capacity)];
  const [low, high] = [Number(range.first), Number(range.end)];
  let size = 0;
  const put: AddNumber = (n, stands) => {
    const small = typeof n === "number";
    if (small ? n < low || n >= high : n < range.first || n >= range.end) return;
    const found = computeDelay(n);
    far[size] = small ? n - low : Number(n - range.first);
    weight[size] = stands;
    delays[size] = found.steps;
    bits[size] = found.bits;
    rest[size] = small ? n % CYCLE : Number(n % BigInt(CYCLE));
    size += 1;
  };
  if (log) sampleLogEvenly(range, count, put);
  else sampleEvenly(range, count, put);
  return {
    range,
    isLog: log,
    distance: far.slice(0, size),
    weight: weight.slice(0, size),
    delays: delays.slice(0, size),
    bits: bits.slice(0, size),
    rest: rest.slice(0, size),
  };
}
