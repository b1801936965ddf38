/**
 * Numbers spread evenly over a range: one drawn from each stratum, so that a picture of the whole is there before every
 * number is computed. Strata lie on a fixed grid: while the view moves, what was seen stays where it was. Pure.
 */

import { delayOf } from "./delays";
import { log2 } from "./number";
import type { Range } from "./view";

export interface Sample {
  range: Range;
  /** Strata are even on a log axis. */
  log: boolean;
  /** Of each number, ascending: how far it is from the first of the range. */
  far: Float64Array;
  /** How many numbers it stands for. */
  weight: Float64Array;
  delays: Uint16Array;
  /** Bits of the greatest value. */
  bits: Uint16Array;
  /** n mod CYCLE, from which n mod m follows for every m up to 8. */
  rest: Uint16Array;
}

/** The least common multiple of 1 to 8. */
export const CYCLE = 840;

type Put = (n: number | bigint, weight: number) => void;

/** 32 bits that depend on all of a stratum's place, on how fine the grid is, and on which word is asked for. */
function word(low: number, high: number, fineness: number, which: number): number {
  let mixed =
    low ^ Math.imul(high + 1, 0x9e3779b1) ^ Math.imul(fineness + 1, 0x85ebca6b) ^ Math.imul(which, 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** A share of [0, 1) with all its 53 bits: of fewer, the numbers of a wide stratum would all be even. */
function share(stratum: number, fineness: number): number {
  const [low, high] = [stratum >>> 0, Math.floor(stratum / 2 ** 32)];
  return (word(low, high, fineness, 0) * 2 ** 21 + (word(low, high, fineness, 1) >>> 11)) / 2 ** 53;
}

/** A number of [0, limit) from 128 bits. */
function below(limit: bigint, stratum: bigint, fineness: number): bigint {
  const low = Number(stratum & 0xffffffffn);
  const high = Number((stratum >> 32n) & 0xffffffffn) ^ Number(stratum >> 64n);
  let bits = 0n;
  for (let which = 0; which < 4; which += 1) bits = (bits << 32n) | BigInt(word(low, high, fineness, which));
  return (bits * limit) >> 128n;
}

/** Doubles hold every number below it. */
const NARROW = 2n ** 53n;

/** Strata of 2^k numbers. */
function evenly({ first, end }: Range, count: number, put: Put): void {
  const most = (end - first) / BigInt(count);
  const k = most > 1n ? most.toString(2).length - 1 : 0;
  const last = (end - 1n) >> BigInt(k);
  if (end <= NARROW) {
    const wide = 2 ** k;
    for (let stratum = Math.floor(Number(first) / wide); stratum <= Number(last); stratum += 1)
      put(stratum * wide + Math.floor(share(stratum, k) * wide), wide);
    return;
  }
  for (let stratum = first >> BigInt(k); stratum <= last; stratum += 1n)
    put((stratum << BigInt(k)) + below(1n << BigInt(k), stratum, k), 2 ** k);
}

/** The least whole number of 2^place or more. */
function powerOf(place: number): bigint {
  if (place < 52) return BigInt(Math.ceil(2 ** place));
  const excess = Math.floor(place) - 52;
  return BigInt(Math.ceil(2 ** (place - excess))) << BigInt(excess);
}

/** Strata of equal ratios, a power of two of them in an octave. */
function evenlyInLog({ first, end }: Range, count: number, put: Put): void {
  const [low, high] = [log2(first), log2(end)];
  const octave = 2 ** Math.max(0, Math.ceil(Math.log2(count / Math.max(2 ** -40, high - low))));
  for (let place = Math.floor(low * octave); place < high * octave; place += 1) {
    if ((place + 1) / octave < 52) {
      const [from, to] = [Math.ceil(2 ** (place / octave)), Math.ceil(2 ** ((place + 1) / octave))];
      if (from < to) put(from + Math.floor(share(place, octave) * (to - from)), to - from);
    } else {
      const [from, to] = [powerOf(place / octave), powerOf((place + 1) / octave)];
      if (from < to) put(from + below(to - from, BigInt(place), octave), Number(to - from));
    }
  }
}

/** From `count` to twice as many numbers of a range; each of them where there are no more. */
export function sample(range: Range, count: number, log: boolean): Sample {
  const room = 2 * count + 200;
  const far = new Float64Array(room);
  const weight = new Float64Array(room);
  const [delays, bits, rest] = [new Uint16Array(room), new Uint16Array(room), new Uint16Array(room)];
  const [low, high] = [Number(range.first), Number(range.end)];
  let size = 0;
  const put: Put = (n, stands) => {
    const small = typeof n === "number";
    if (small ? n < low || n >= high : n < range.first || n >= range.end) return;
    const found = delayOf(n);
    far[size] = small ? n - low : Number(n - range.first);
    weight[size] = stands;
    delays[size] = found.steps;
    bits[size] = found.bits;
    rest[size] = small ? n % CYCLE : Number(n % BigInt(CYCLE));
    size += 1;
  };
  if (log) evenlyInLog(range, count, put);
  else evenly(range, count, put);
  return {
    range,
    log,
    far: far.slice(0, size),
    weight: weight.slice(0, size),
    delays: delays.slice(0, size),
    bits: bits.slice(0, size),
    rest: rest.slice(0, size),
  };
}
