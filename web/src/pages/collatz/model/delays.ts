/**
 * Exact delays, and bits of the peaks, of a window of numbers. For n = 2^16 h + r, 16 shortcut steps lead to 3^c h + d,
 * c and d depending on r alone: doubles hold that below 2^42, integers of any size above. Pure.
 */

import { bitLength } from "./number";

const BLOCK = 16;
const SIZE = 2 ** BLOCK;
/** Below it a table knows the end. Above SIZE, so that h >= 1 and no block runs through 1. */
const KNOWN = 2 ** 20;
/** 1.5^16 x 3 x 2^42 stays below 2^53. */
const WIDE = 2 ** 42;
const POWERS = Array.from({ length: BLOCK + 1 }, (_, power) => 3 ** power);
const WIDE_POWERS = POWERS.map(BigInt);
/** Bound of the rounding and of the +1s together. */
const SLACK = 1.001;

interface Tables {
  odd: Uint8Array;
  end: Uint32Array;
  /** Greatest value on the way, over the number itself. */
  gain: Float32Array;
  delay: Uint16Array;
  bits: Uint8Array;
}

let tables: Tables | undefined;

/** Bits of a whole number below 2^53. */
function bitsOf(value: number): number {
  return value < 2 ** 32 ? 32 - Math.clz32(value) : 64 - Math.clz32(Math.floor(value / 2 ** 32));
}

function blockTables(): Pick<Tables, "odd" | "end" | "gain"> {
  const [odd, end, gain] = [new Uint8Array(SIZE), new Uint32Array(SIZE), new Float32Array(SIZE)];
  for (let rest = 0; rest < SIZE; rest += 1) {
    let [value, factor, most] = [rest, 1, 1];
    for (let step = 0; step < BLOCK; step += 1) {
      if (value % 2) {
        most = Math.max(most, 3 * factor);
        odd[rest] = (odd[rest] as number) + 1;
        value = (3 * value + 1) / 2;
        factor *= 1.5;
      } else {
        value /= 2;
        factor /= 2;
      }
    }
    end[rest] = value;
    gain[rest] = most * SLACK;
  }
  return { odd, end, gain };
}

/** Delays and bits of peaks of all numbers below KNOWN, each from a smaller one. */
function knownTables(): Pick<Tables, "delay" | "bits"> {
  const [delay, bits] = [new Uint16Array(KNOWN), new Uint8Array(KNOWN)];
  bits[1] = 1;
  for (let n = 2; n < KNOWN; n += 1) {
    let [value, steps, peak] = [n, 0, n];
    while (value >= n) {
      if (value % 2) {
        value = 3 * value + 1;
        peak = Math.max(peak, value);
      } else value /= 2;
      steps += 1;
    }
    delay[n] = steps + (delay[value] as number);
    bits[n] = Math.max(bitsOf(peak), bits[value] as number);
  }
  return { delay, bits };
}

function ready(): Tables {
  tables ??= { ...blockTables(), ...knownTables() };
  return tables;
}

/** The greatest value of a block, walked. */
function climbed(from: number, peak: number): number {
  let [value, most] = [from, peak];
  for (let step = 0; step < BLOCK; step += 1) {
    if (value % 2) {
      value = 3 * value + 1;
      most = Math.max(most, value);
    }
    value /= 2;
  }
  return most;
}

function climbedWide(from: bigint, peak: bigint): bigint {
  let [value, most] = [from, peak];
  for (let step = 0; step < BLOCK; step += 1) {
    if (value & 1n) {
      value = 3n * value + 1n;
      if (value > most) most = value;
    }
    value >>= 1n;
  }
  return most;
}

/** State of one number: `steps` up to now and the bits of the greatest value. Reused, since there are millions. */
const state = { steps: 0, bits: 0 };

/** From a number below WIDE to the end, or to the first value of WIDE or more, which is given back; 0 at the end. */
function narrow(from: number, known: Tables): number {
  let value = from;
  let bound = 2 ** state.bits;
  while (value >= KNOWN) {
    if (value >= WIDE) return value;
    const high = Math.floor(value / SIZE);
    const rest = value - high * SIZE;
    if (value * (known.gain[rest] as number) >= bound) {
      state.bits = Math.max(state.bits, bitsOf(climbed(value, value)));
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

/** From a number of WIDE or more to the first value below. */
function wide(from: bigint, known: Tables): number {
  let value = from;
  while (value >= BigInt(WIDE)) {
    const rest = Number(value & 0xffffn);
    if (Number(value) * (known.gain[rest] as number) >= 2 ** state.bits) {
      state.bits = Math.max(state.bits, bitLength(climbedWide(value, value)));
    }
    const odd = known.odd[rest] as number;
    state.steps += BLOCK + odd;
    value = (value >> BigInt(BLOCK)) * (WIDE_POWERS[odd] as bigint) + BigInt(known.end[rest] as number);
  }
  return Number(value);
}

function one(n: bigint | number, known: Tables): void {
  state.steps = 0;
  state.bits = 0;
  let value: bigint | number = n;
  for (;;) {
    const small: number = value < WIDE ? Number(value) : wide(BigInt(value), known);
    const rest = narrow(small, known);
    if (!rest) return;
    value = rest;
  }
}

/** Three times it, and one more, is an integer of 32 bits. */
const SMALL_ODD = 2 ** 29;

/** Step by step to 1 in integers and doubles, without tables; false where a value is too great for them. */
function stepwise(n: number): boolean {
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
  [state.steps, state.bits] = [steps, bitsOf(peak)];
  return true;
}

/** Steps of a number from 1 on, and bits of its greatest value; the same object each time. */
export function delayOf(n: bigint | number): Readonly<typeof state> {
  if (tables || typeof n !== "number" || !stepwise(n)) one(n, ready());
  return state;
}

export interface Window {
  start: bigint;
  delays: Uint16Array;
  /** Bits of the greatest value of each. */
  bits: Uint16Array;
}

/** Exact delays of start, start + 1, … in order. 0 for n = 0, which has no trajectory. */
export function window(start: bigint, count: number): Window {
  const known = ready();
  const filled = { start, delays: new Uint16Array(count), bits: new Uint16Array(count) };
  const narrowStart = start + BigInt(count) < BigInt(WIDE) ? Number(start) : undefined;
  for (let place = 0; place < count; place += 1) {
    one(narrowStart === undefined ? start + BigInt(place) : narrowStart + place, known);
    filled.delays[place] = state.steps;
    filled.bits[place] = state.bits;
  }
  return filled;
}

/** Steps and greatest value of one number, step by step: in a double while it fits. */
function plain(n: bigint): { steps: number; peak: bigint } {
  let steps = 0;
  let small = n <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n) : 0;
  let [value, peak, most] = [n, n, small];
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
      if (small > most) most = small;
    }
  }
  return { steps, peak: BigInt(most) > peak ? BigInt(most) : peak };
}

/** 3n + 1 of a greater one is no exact double. */
const SAFE_ODD = (Number.MAX_SAFE_INTEGER - 1) / 3;

/** `number,steps,greatest value` a line, exactly. */
export function table(start: bigint, count: number): string {
  const lines: string[] = [];
  for (let place = 0; place < count; place += 1) {
    const n = start + BigInt(place);
    const { steps, peak } = plain(n);
    lines.push(`${n},${steps},${peak}\r\n`);
  }
  return lines.join("");
}
