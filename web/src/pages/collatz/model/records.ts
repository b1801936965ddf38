/**
 * The published records: every n whose delay or greatest value exceeds those of all smaller numbers. OEIS A006877 and
 * A006884, as in jobs/kinds/collatz/records_published.py; a test compares both. Their values are computed, which is
 * exact.
 */

import { computeTrajectory } from "./trajectory";

const DELAY_RECORDS = [
  1, 2, 3, 6, 7, 9, 18, 25, 27, 54, 73, 97, 129, 171, 231, 313, 327, 649, 703, 871, 1161, 2223, 2463, 2919, 3711, 6171,
  10971, 13255, 17647, 23529, 26623, 34239, 35655, 52527, 77031, 106239, 142587, 156159, 216367, 230631, 410011, 511935,
  626331, 837799, 1117065, 1501353, 1723519, 2298025, 3064033, 3542887, 3732423, 5649499, 6649279, 8400511, 11200681,
  14934241, 15733191, 31466382, 36791535, 63728127, 127456254, 169941673, 226588897, 268549803, 537099606, 670617279,
  1341234558, 1412987847, 1674652263, 2610744987, 4578853915, 4890328815, 9780657630, 12212032815, 12235060455,
  13371194527, 17828259369,
];

const PATH_RECORDS = [
  1, 2, 3, 7, 15, 27, 255, 447, 639, 703, 1819, 4255, 4591, 9663, 20895, 26623, 31911, 60975, 77671, 113383, 138367,
  159487, 270271, 665215, 704511, 1042431, 1212415, 1441407, 1875711, 1988859, 2643183, 2684647, 3041127, 3873535,
  4637979, 5656191, 6416623, 6631675, 19638399, 38595583, 80049391, 120080895, 210964383, 319804831, 1410123943,
  8528817511, 12327829503,
];

export type RecordKind = "delay" | "path";

/** A record of a range in the API. */
export interface RangeRecord {
  n: bigint;
  value: bigint;
}

export interface ComparedRecord extends RangeRecord {
  /**
   * published: in the published list. range: a record only within the range. beyond: exceeds all published records and
   * is above the end of the list. wrong: contradicts the list.
   */
  status: "published" | "range" | "beyond" | "wrong";
}

const NUMBERS: Record<RecordKind, readonly number[]> = { delay: DELAY_RECORDS, path: PATH_RECORDS };
const lists: { [kind in RecordKind]?: ReadonlyMap<bigint, bigint> } = {};

function computeRecord(kind: RecordKind, number: number): [bigint, bigint] {
  const { n, delay, peak } = computeTrajectory(BigInt(number));
  return [n, kind === "delay" ? BigInt(delay) : peak];
}

function getRecords(kind: RecordKind): ReadonlyMap<bigint, bigint> {
  lists[kind] ??= new Map(NUMBERS[kind].map((number) => computeRecord(kind, number)));
  return lists[kind];
}

/** Return the published records of a kind in ascending order. */
export function publishedRecords(kind: RecordKind): RangeRecord[] {
  return [...getRecords(kind)].map(([n, value]) => ({ n, value }));
}

/** Return the limit up to which the lists are complete. */
export function completeLimit(kind: RecordKind): bigint {
  return BigInt(NUMBERS[kind].at(-1) as number);
}

/** Return the greatest published record below a number. */
function bestBelow(kind: RecordKind, n: bigint): bigint {
  let best = -1n;
  for (const [each, value] of getRecords(kind)) if (each < n && value > best) best = value;
  return best;
}

export function compareRecords(kind: RecordKind, records: readonly RangeRecord[]): ComparedRecord[] {
  return records.map((record) => ({ ...record, status: recordStatus(kind, record) }));
}

function recordStatus(kind: RecordKind, { n, value }: RangeRecord): ComparedRecord["status"] {
  const listed = getRecords(kind).get(n);
  if (listed !== undefined) return listed === value ? "published" : "wrong";
  if (value <= bestBelow(kind, n)) return "range";
  return n > completeLimit(kind) ? "beyond" : "wrong";
}

/** Return published records of [first, end) that a finished range did not find. */
export function missingRecords(
  kind: RecordKind,
  records: readonly RangeRecord[],
  first: bigint,
  end: bigint,
): RangeRecord[] {
  const had = new Set(records.map((record) => record.n));
  return publishedRecords(kind).filter(({ n }) => n >= first && n < end && !had.has(n));
}
