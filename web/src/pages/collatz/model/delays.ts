/**
 * Exact delays and peak sizes in bits of a window of numbers. For n = 2^16 h + r, 16 shortcut steps lead to 3^c h + d,
 * where c and d depend only on r. Doubles are exact below 2^42; larger numbers use big integers. Pure functions.
 */

import { bitLength } from "./number";

const BLOCK = 16;
const SIZE = 2 ** BLOCK;
/** Limit below which delays come from a table. It exceeds SIZE, so that h >= 1 and no block passes 1. */
const TABLE_LIMIT = 2 ** 20;
/** Limit for doubles: 1.5^16 x 3 x 2^42 is below 2^53. */
const DOUBLE_LIMIT = 2 ** 42;
const POWERS = Array.from({ length: BLOCK + 1 }, (_, power) => 3 ** power);
const WIDE_POWERS = POWERS.map(BigInt);
/** Combined bound of rounding errors and the +1 terms. */
const SLACK = 1.001;

interface Tables {
  odd: Uint8Array;
  end: Uint32Array;
  /** Ratio of the greatest value on the way to the number. */
  gain: Float32Array;
  delay: Uint16Array;
  bits: Uint8Array;
}

let tables: Tables | undefined;

/** Return the number of bits of an integer below 2^53. */
function countBits(value: number): number {
  return value < 2 ** 32 ? 32 - Math.clz32(value) : 64 - Math.clz32(Math.floor(value / 2 ** 32));
}

function createBlockTables(): Pick<Tables, "odd" | "end" | "gain"> {
  const [odd, end, gain] = [new Uint8Array(SIZE), new Uint32Array(SIZE), new Float32Array(SIZE)];
  for (let rest = 0; rest < SIZE; rest += 1) {
    let [value, factor, max] = [rest, 1, 1];
    for (let step = 0; step < BLOCK; step += 1) {
      if (value % 2) {
        max = Math.max(max, 3 * factor);
        odd[rest] = (odd[rest] as number) + 1;
        value = (3 * value + 1) / 2;
        factor *= 1.5;
      } else {
        value /= 2;
        factor /= 2;
      }
    }
    end[rest] = value;
    gain[rest] = max * SLACK;
  }
  return { odd, end, gain };
}

/** Compute delays and peak bits of all numbers below KNOWN, each from a smaller number. */
function createDelayTables(): Pick<Tables, "delay" | "bits"> {
  const [delay, bits] = [new Uint16Array(TABLE_LIMIT), new Uint8Array(TABLE_LIMIT)];
  bits[1] = 1;
  for (let n = 2; n < TABLE_LIMIT; n += 1) {
    let [value, steps, peak] = [n, 0, n];
    while (value >= n) {
      if (value % 2) {
        value = 3 * value + 1;
        peak = Math.max(peak, value);
      } else value /= 2;
      steps += 1;
    }
    delay[n] = steps + (delay[value] as number);
    bits[n] = Math.max(countBits(peak), bits[value] as number);
  }
  return { delay, bits };
}

function getTables(): Tables {
  tables ??= { ...createBlockTables(), ...createDelayTables() };
  return tables;
}

/** Return the greatest value of a block by stepping through it. */
function peakOfBlock(from: number, peak: number): number {
  let [value, max] = [from, peak];
  for (let step = 0; step < BLOCK; step += 1) {
    if (value % 2) {
      value = 3 * value + 1;
      max = Math.max(max, value);
    }
    value /= 2;
  }
  return max;
}

function peakOfWideBlock(from: bigint, peak: bigint): bigint {
  let [value, max] = [from, peak];
  for (let step = 0; step < BLOCK; step += 1) {
    if (value & 1n) {
      value = 3n * value + 1n;
      if (value > max) max = value;
    }
    value >>= 1n;
  }
  return max;
}

/** State of one number: steps so far and bits of the greatest value. Reused, because there are millions. */
const state = { steps: 0, bits: 0 };

/** Step from a number below WIDE to the end, and return 0, or return the first value of WIDE or more. */
function stepNarrow(from: number, known: Tables): number {
  let value = from;
  let bound = 2 ** state.bits;
  while (value >= TABLE_LIMIT) {
    if (value >= DOUBLE_LIMIT) return value;
    const high = Math.floor(value / SIZE);
    const rest = value - high * SIZE;
    if (value * (known.gain[rest] as number) >= bound) {
      state.bits = Math.max(state.bits, countBits(peakOfBlock(value, value)));
      bound = 2 ** state.bits;
    }
    const odd = known.odd[rest] as number;
    state.steps += BLOCK + odd;
    value = high * (POWERS[odd] as number) + (known.end[rest] as number);
  }
  state.steps += known.delay[value] as number;
  state.bits = Math.max(state.bits, known.bits[value] as number);
  return 0;
}

/** Step from a number of WIDE or more to the first value below. */
function stepWide(from: bigint, known: Tables): number {
  let value = from;
  while (value >= BigInt(DOUBLE_LIMIT)) {
    const rest = Number(value & 0xffffn);
    if (Number(value) * (known.gain[rest] as number) >= 2 ** state.bits) {
      state.bits = Math.max(state.bits, bitLength(peakOfWideBlock(value, value)));
    }
    const odd = known.odd[rest] as number;
    state.steps += BLOCK + odd;
    value = (value >> BigInt(BLOCK)) * (WIDE_POWERS[odd] as bigint) + BigInt(known.end[rest] as number);
  }
  return Number(value);
}

function computeState(n: bigint | number, known: Tables): void {
  state.steps = 0;
  state.bits = 0;
  let value: bigint | number = n;
  for (;;) {
    const small: number = value < DOUBLE_LIMIT ? Number(value) : stepWide(BigInt(value), known);
    const rest = stepNarrow(small, known);
    if (!rest) return;
    value = rest;
  }
}

/** Limit below which 3n + 1 fits into a 32-bit integer. */
const SMALL_ODD = 2 ** 29;

/** Step to 1 without tables; returns false if a value is too large for doubles. */
function stepToEnd(n: number): boolean {
  let [value, steps, peak] = [n, 0, n];
  while (value !== 1) {
    if (value < SMALL_ODD) {
      let small = value | 0;
      for (; small !== 1 && small < SMALL_ODD; steps += 1) {
        if (small & 1) {
          small = 3 * small + 1;
          if (small > peak) peak = small;
        } else small >>= 1;
      }
      value = small;
      continue;
    }
    if (value % 2 === 0) value /= 2;
    else if (value > SAFE_ODD) return false;
    else {
      value = 3 * value + 1;
      if (value > peak) peak = value;
    }
    steps += 1;
  }
  [state.steps, state.bits] = [steps, countBits(peak)];
  return true;
}

/** Return the steps of a number >= 1 and the bits of its greatest value, in a reused object. */
export function computeDelay(n: bigint | number): Readonly<typeof state> {
  if (tables || typeof n !== "number" || !stepToEnd(n)) computeState(n, getTables());
  return state;
}

export interface DelayWindow {
  start: bigint;
  delays: Uint16Array;
  /** Bits of the greatest value of each number. */
  bits: Uint16Array;
}

/** Return exact delays of start, start + 1, … in order. 0 for n = 0, which has no trajectory. */
export function computeWindow(start: bigint, count: number): DelayWindow {
  const known = getTables();
  const filled = { start, delays: new Uint16Array(count), bits: new Uint16Array(count) };
  const narrowStart = start + BigInt(count) < BigInt(DOUBLE_LIMIT) ? Number(start) : undefined;
  for (let index = 0; index < count; index += 1) {
    computeState(narrowStart === undefined ? start + BigInt(index) : narrowStart + index, known);
    filled.delays[index] = state.steps;
    filled.bits[index] = state.bits;
  }
  return filled;
}

/** Return steps and greatest value of a number by single steps, with doubles if they are exact. */
function computeExact(n: bigint): { steps: number; peak: bigint } {
  let steps = 0;
  let small = n <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n) : 0;
  let [value, peak, max] = [n, n, small];
  while (small ? small !== 1 : value !== 1n) {
    steps += 1;
    if (!small) {
      value = value & 1n ? 3n * value + 1n : value >> 1n;
      if (value > peak) peak = value;
      if (value <= BigInt(Number.MAX_SAFE_INTEGER)) small = Number(value);
    } else if (small % 2 === 0) small /= 2;
    else if (small > SAFE_ODD) {
      [value, small] = [3n * BigInt(small) + 1n, 0];
      if (value > peak) peak = value;
    } else {
      small = 3 * small + 1;
      if (small > max) max = small;
    }
  }
  return { steps, peak: BigInt(max) > peak ? BigInt(max) : peak };
}

/** Limit above which 3n + 1 is not an exact double. */
const SAFE_ODD = (Number.MAX_SAFE_INTEGER - 1) / 3;

/** Return lines of `number,steps,greatest value` with exact values. */
export function formatTable(start: bigint, count: number): string {
  const lines: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const n = start + BigInt(index);
    const { steps, peak } = computeExact(n);
    lines.push(`${n},${steps},${peak}\r\n`);
  }
  return lines.join("");
}
