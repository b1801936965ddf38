/**
 * The exact trajectory of a number of any size. A step is n/2 or 3n+1; a shortcut step is n/2 or (3n+1)/2, and its
 * parity bit is 1 if the number was odd. Pure functions.
 */

import { log2 } from "./number";

const LOG3 = Math.log2(3);
/** Number of combined shortcut steps, which depend on as many low bits; 3^32 is exact in a double. */
const BLOCK = 32;
/** Bits above which the +1 of 3n+1 is invisible in a logarithm. */
const WIDE_BITS = 64;
const POWERS = Array.from({ length: BLOCK + 1 }, (_, power) => 3n ** BigInt(power));
/** Number of blocks between stored values, from which other values are recomputed. */
const STORE_INTERVAL = 32;
/** Maximum number of shortcut steps, as in the kind's definition. */
export const STEP_LIMIT = 20_000_000;

export interface StoredValue {
  step: number;
  shortcut: number;
  value: bigint;
}

export interface Trajectory {
  n: bigint;
  /** False if the limit was reached; other fields then describe the computed part. */
  isComplete: boolean;
  /** Steps to 1. */
  delay: number;
  odd: number;
  /** Number of shortcut steps. */
  shortcut: number;
  /** One bit per shortcut step, least significant bit first. */
  parity: Uint8Array;
  /** log2 of the value at every step, starting with n. */
  logs: Float32Array;
  peak: bigint;
  peakStep: number;
  /** Stored values in ascending order of steps, starting with n. */
  storedValues: StoredValue[];
}

/** Values that a walk records. */
class TrajectoryRecorder {
  logs = new Float32Array(1024);
  parity = new Uint8Array(128);
  step = 0;
  shortcut = 0;
  odd = 0;
  peak = 0n;
  peakLog = -1;
  peakStep = 0;

  /** Record the logarithm of the value at the current step. */
  addLog(value: number): void {
    if (this.step >= this.logs.length) this.logs = copyInto(this.logs, new Float32Array(2 * this.logs.length));
    this.logs[this.step] = value;
  }

  addBit(odd: boolean): void {
    if (this.shortcut >= 8 * this.parity.length)
      this.parity = copyInto(this.parity, new Uint8Array(2 * this.parity.length));
    if (odd) {
      this.parity[this.shortcut >> 3] = (this.parity[this.shortcut >> 3] as number) | (1 << (this.shortcut & 7));
      this.odd += 1;
    }
    this.shortcut += 1;
  }

  updatePeak(value: bigint, step: number): void {
    if (value <= this.peak) return;
    this.peak = value;
    this.peakStep = step;
    this.peakLog = log2(value);
  }
}

function copyInto<T extends Float32Array | Uint8Array>(from: T, into: T): T {
  into.set(from);
  return into;
}

/** Return the next value. */
export function nextValue(value: bigint): bigint {
  return value & 1n ? 3n * value + 1n : value >> 1n;
}

/** Apply 32 shortcut steps to a large number, and return the result and its logarithm. */
function applyBlock(trace: TrajectoryRecorder, value: bigint, logarithm: number): [bigint, number] {
  const began = trace.step;
  let rest = Number(value & 0xffffffffn);
  let [log, max, odd] = [logarithm, logarithm, 0];
  for (let taken = 0; taken < BLOCK; taken += 1) {
    const isOdd = rest % 2 === 1;
    trace.addLog(log);
    trace.addBit(isOdd);
    trace.step += 1;
    if (isOdd) {
      log += LOG3;
      trace.addLog(log);
      if (log > max) max = log;
      trace.step += 1;
      odd += 1;
    }
    log -= 1;
    rest = (isOdd ? 3 * rest + 1 : rest) / 2;
  }
  if (max > trace.peakLog - 1e-6) findPeak(trace, value, began, trace.step);
  const end = (value >> BigInt(BLOCK)) * (POWERS[odd] as bigint) + BigInt(rest);
  return [end, preciseLog(end, log)];
}

/** Recompute log2 from the leading bits, so that errors do not accumulate. */
function preciseLog(value: bigint, near: number): number {
  const excess = Math.max(0, Math.floor(near) - 60);
  return Math.log2(Number(value >> BigInt(excess))) + excess;
}

/** Find the greatest value between two steps. */
function findPeak(trace: TrajectoryRecorder, from: bigint, step: number, end: number): void {
  let value = from;
  for (let at = step; at < end; at += 1) {
    trace.updatePeak(value, at);
    value = nextValue(value);
  }
}

/** Step to 1 one by one. */
function stepToEnd(trace: TrajectoryRecorder, from: bigint, limit: number): bigint {
  let value = from;
  while (value !== 1n && trace.shortcut < limit) {
    const odd = (value & 1n) === 1n;
    for (let steps = odd ? 2 : 1; steps > 0; steps -= 1) {
      trace.addLog(Math.log2(Number(value)));
      trace.updatePeak(value, trace.step);
      value = nextValue(value);
      trace.step += 1;
    }
    trace.addBit(odd);
  }
  trace.addLog(Math.log2(Number(value)));
  trace.updatePeak(value, trace.step);
  return value;
}

/** Walk from n >= 1 to 1. Throws RangeError for smaller numbers. */
export function computeTrajectory(n: bigint, limit = STEP_LIMIT): Trajectory {
  if (n < 1n) throw new RangeError(`a trajectory begins at 1 or above; got ${n}`);
  const trace = new TrajectoryRecorder();
  const storedValues: StoredValue[] = [];
  let [value, logarithm] = [n, log2(n)];
  for (let blocks = 0; logarithm > WIDE_BITS && trace.shortcut < limit; blocks += 1) {
    if (blocks % STORE_INTERVAL === 0) storedValues.push({ step: trace.step, shortcut: trace.shortcut, value });
    [value, logarithm] = applyBlock(trace, value, logarithm);
  }
  storedValues.push({ step: trace.step, shortcut: trace.shortcut, value });
  const last = logarithm > WIDE_BITS ? value : stepToEnd(trace, value, limit);
  if (last !== 1n) trace.addLog(logarithm);
  return {
    n,
    isComplete: last === 1n,
    delay: trace.step,
    odd: trace.odd,
    shortcut: trace.shortcut,
    parity: trace.parity.slice(0, (trace.shortcut + 7) >> 3),
    logs: trace.logs.slice(0, trace.step + 1),
    peak: trace.peak,
    peakStep: trace.peakStep,
    storedValues,
  };
}

/** Return up to `count` values from a step on. */
export function computeValues(trajectory: Trajectory, step: number, count = 1): bigint[] {
  const from = trajectory.storedValues.findLast((each) => each.step <= step) as StoredValue;
  let value = from.value;
  for (let at = from.step; at < step; at += 1) value = nextValue(value);
  const terms: bigint[] = [];
  for (let at = step; at <= Math.min(trajectory.delay, step + count - 1); at += 1) {
    terms.push(value);
    value = nextValue(value);
  }
  return terms;
}

/** Return True if a shortcut step started at an odd number. */
export function bitAt(parity: Uint8Array, index: number): number {
  return ((parity[index >> 3] ?? 0) >> (index & 7)) & 1;
}

export interface Meeting {
  /** Steps from the common value to 1. */
  remaining: number;
  /** Step at which each trajectory reaches it. */
  steps: [number, number];
}

type Path = Pick<Trajectory, "delay" | "shortcut" | "parity">;

/**
 * Return the first common value of two complete trajectories. Both end at 1, and the parity bits determine the values
 * backwards, so the common suffix of the bits determines the common values.
 */
export function findMeeting(left: Path, right: Path): Meeting {
  const maxCommon = Math.min(left.shortcut, right.shortcut);
  let [commonBits, remaining] = [0, 0];
  while (commonBits < maxCommon) {
    const bit = bitAt(left.parity, left.shortcut - 1 - commonBits);
    if (bit !== bitAt(right.parity, right.shortcut - 1 - commonBits)) break;
    commonBits += 1;
    remaining += 1 + bit;
  }
  // w is common: one trajectory came from 2w, the other from (2w-1)/3 through 2w
  if (commonBits < maxCommon) remaining += 1;
  return { remaining, steps: [left.delay - remaining, right.delay - remaining] };
}

/** Return the minimum and maximum of a curve in each pixel. */
export function decimateCurve(
  curve: Float32Array,
  from: number,
  to: number,
  runs: number,
): { low: Float32Array; high: Float32Array } {
  const low = new Float32Array(runs).fill(Infinity);
  const high = new Float32Array(runs).fill(-Infinity);
  const scale = runs / Math.max(1, to - from);
  for (let at = Math.max(0, Math.floor(from)); at <= Math.min(curve.length - 1, Math.ceil(to)); at += 1) {
    const run = Math.min(runs - 1, Math.max(0, Math.floor((at - from) * scale)));
    const value = curve[at] as number;
    if (value < (low[run] as number)) low[run] = value;
    if (value > (high[run] as number)) high[run] = value;
  }
  return { low, high };
}
