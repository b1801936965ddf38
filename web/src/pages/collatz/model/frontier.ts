/** Classes, blocks and times of a search of mode frontier. frontier.md of the kind explains them. Pure functions. */

import type { Job } from "../../../lib/api";

/** Bounds of N. */
export const MIN_BITS = 20;
export const MAX_BITS = 88;
/** Depth of the numbered classes, number of blocks of a certificate, and factor of the permutation of classes. */
const ROOT = 22;
export const BLOCKS = 4096;
const MULTIPLIER = 1_000_003;
/** Constants of the rules that drop classes; logarithms have units of 2^-20. */
const ONE = 2 ** 20;
const LOG3 = 1_661_954;
const NEGATIVE = -7000;
const JOINS = 7;
const DOUBLINGS = 5;
/** Factor of the time for each further bit: twice the numbers, of which about 5 % fewer survive. */
const GROWTH = 1.9;

/** Block, survivors, passes and checksum. */
export type Row = [block: number, survivors: number | string, passes: number | string, checksum: string];

export interface FrontierResult {
  verified: boolean;
  statement: string;
  survivors: number | string;
  block_steps: number | string;
  checksum: string;
  largest_bits: number;
  certificate: Row[];
}

const joins = new Map<number, number>();

/** Return the logarithm of the least factor to a predecessor of a value, which is known modulo 3^known. */
function join(known: number, residue: number): number {
  const key = residue * 8 + known;
  let least = joins.get(key) ?? 0;
  if (known && residue % 3 && !joins.has(key)) {
    for (let [doublings, value] = [0, residue]; doublings <= DOUBLINGS; doublings += 1, value *= 2)
      if (value % 3 === 2) {
        const before = ((2 * value - 1) / 3) % 3 ** (known - 1);
        least = Math.min(least, (doublings + 1) * ONE - LOG3 + join(known - 1, before));
      }
    joins.set(key, least);
  }
  return least;
}

/** Return the numbers below 2^depth whose classes no rule drops, in the order of their bits, lowest first. */
export function listClasses(depth: number): number[] {
  const found: number[] = [];
  const visit = (k: number, c: number, x: number, b: number): void => {
    if (k === depth) {
      found.push(b);
      return;
    }
    for (const bit of [0, 1]) {
      const y = x + bit * 3 ** c;
      const odd = c + (y % 2);
      const z = y % 2 ? (3 * y + 1) / 2 : y / 2;
      const known = Math.min(odd, JOINS);
      if (odd * LOG3 - (k + 1) * ONE + join(known, z % 3 ** known) >= NEGATIVE) visit(k + 1, odd, z, b + bit * 2 ** k);
    }
  };
  visit(0, 0, 0, 0);
  return found;
}

export interface Classes {
  depth: number;
  /** Least numbers of the classes. */
  numbers: readonly number[];
  /** Share of each class whose blocks have results. */
  shares: Float32Array;
}

/** Return the classes of a job, and how much of each class has a result. */
export function readClasses(bits: number, total: number, rows: readonly Row[]): Classes {
  const depth = Math.min(ROOT, bits - 10);
  const numbers = listClasses(depth);
  const units = total / numbers.length;
  const shares = new Float32Array(numbers.length);
  for (const [block] of rows) {
    const [low, high] = [Math.ceil((block * total) / BLOCKS), Math.ceil(((block + 1) * total) / BLOCKS)];
    for (let index = Math.floor(low / units); index * units < high; index += 1) {
      const part = Math.min(high, (index + 1) * units) - Math.max(low, index * units);
      const node = (index * MULTIPLIER) % numbers.length;
      shares[node] = Math.min(1, (shares[node] as number) + part / units);
    }
  }
  return { depth, numbers, shares };
}

/** Classes with the same lowest bits. */
export interface Group {
  residue: number;
  /** Index of the first class. */
  first: number;
  count: number;
  /** Sum of the shares. */
  done: number;
}

/** Group classes by their lowest bits. Groups that would be narrower than one of `columns` are merged. */
export function groupClasses({ numbers, shares }: Classes, bits: number, columns = Infinity): Group[] {
  const groups: Group[] = [];
  for (const [index, number] of numbers.entries()) {
    const residue = number % 2 ** bits;
    const last = groups.at(-1);
    const isNew = last?.residue !== residue && !(last && last.count * columns < numbers.length);
    const group = isNew ? { residue, first: index, count: 0, done: 0 } : (last as Group);
    if (isNew) groups.push(group);
    group.count += 1;
    group.done += shares[index] as number;
  }
  return groups;
}

type MeasuredJob = Pick<Job, "job_id" | "type" | "parameters" | "done" | "total" | "seconds">;

/** Return N of a job of mode frontier, or 0 for other jobs. */
export function bitsOf({ type, parameters }: Pick<Job, "type" | "parameters">): number {
  const { mode, bits } = parameters as { mode?: string; bits?: number };
  return type === "collatz" && mode === "frontier" ? Number(bits) : 0;
}

export interface FrontierPace {
  job: string;
  bits: number;
  /** Seconds of a whole search with this N. */
  seconds: number;
}

/** Return the pace of the search that was measured for the longest time. */
export function frontierPace(jobs: readonly MeasuredJob[]): FrontierPace | undefined {
  const [best] = jobs
    .filter((job) => bitsOf(job) && Number(job.done) > 0 && (job.seconds ?? 0) > 0)
    .sort((one, other) => (other.seconds as number) - (one.seconds as number));
  if (!best) return undefined;
  const seconds = ((best.seconds as number) * Number(best.total)) / Number(best.done);
  return { job: best.job_id, bits: bitsOf(best), seconds };
}

/** Return the expected seconds of a search of all numbers below 2^bits. */
export function secondsTo(bits: number, pace: FrontierPace): number {
  return pace.seconds * GROWTH ** (bits - pace.bits);
}
