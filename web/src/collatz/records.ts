/**
 * The published records: every n whose delay, or greatest value, exceeds that of all smaller numbers. OEIS
 * A006877/A006878 and A006884/A006885, as the kind has them (jobs/kinds/collatz/published.py; a test compares the two).
 */

/** [n, delay]. */
export const DELAYS: readonly (readonly [number, number])[] = [
  [1, 0], [2, 1], [3, 7], [6, 8], [7, 16], [9, 19], [18, 20], [25, 23], [27, 111], [54, 112], [73, 115], [97, 118], [129, 121],
  [171, 124], [231, 127], [313, 130], [327, 143], [649, 144], [703, 170], [871, 178], [1161, 181], [2223, 182], [2463, 208],
  [2919, 216], [3711, 237], [6171, 261], [10971, 267], [13255, 275], [17647, 278], [23529, 281], [26623, 307], [34239, 310],
  [35655, 323], [52527, 339], [77031, 350], [106239, 353], [142587, 374], [156159, 382], [216367, 385], [230631, 442],
  [410011, 448], [511935, 469], [626331, 508], [837799, 524], [1117065, 527], [1501353, 530], [1723519, 556], [2298025, 559],
  [3064033, 562], [3542887, 583], [3732423, 596], [5649499, 612], [6649279, 664], [8400511, 685], [11200681, 688],
  [14934241, 691], [15733191, 704], [31466382, 705], [36791535, 744], [63728127, 949], [127456254, 950], [169941673, 953],
  [226588897, 956], [268549803, 964], [537099606, 965], [670617279, 986], [1341234558, 987], [1412987847, 1000],
  [1674652263, 1008], [2610744987, 1050], [4578853915, 1087], [4890328815, 1131], [9780657630, 1132], [12212032815, 1153],
  [12235060455, 1184], [13371194527, 1210], [17828259369, 1213],
];

/** [n, greatest value]; values beyond 2^53 as strings. */
export const PATHS: readonly (readonly [number, string])[] = [
  [1, "1"], [2, "2"], [3, "16"], [7, "52"], [15, "160"], [27, "9232"], [255, "13120"], [447, "39364"], [639, "41524"],
  [703, "250504"], [1819, "1276936"], [4255, "6810136"], [4591, "8153620"], [9663, "27114424"], [20895, "50143264"],
  [26623, "106358020"], [31911, "121012864"], [60975, "593279152"], [77671, "1570824736"], [113383, "2482111348"],
  [138367, "2798323360"], [159487, "17202377752"], [270271, "24648077896"], [665215, "52483285312"], [704511, "56991483520"],
  [1042431, "90239155648"], [1212415, "139646736808"], [1441407, "151629574372"], [1875711, "155904349696"],
  [1988859, "156914378224"], [2643183, "190459818484"], [2684647, "352617812944"], [3041127, "622717901620"],
  [3873535, "858555169576"], [4637979, "1318802294932"], [5656191, "2412493616608"], [6416623, "4799996945368"],
  [6631675, "60342610919632"], [19638399, "306296925203752"], [38595583, "474637698851092"], [80049391, "2185143829170100"],
  [120080895, "3277901576118580"], [210964383, "6404797161121264"], [319804831, "1414236446719942480"],
  [1410123943, "7125885122794452160"], [8528817511, "18144594937356598024"], [12327829503, "20722398914405051728"],
];

export type RecordKind = "delay" | "path";

/** A record of a range as the API tells it. */
export interface RangeRecord {
  n: bigint;
  value: bigint;
}

export interface Compared extends RangeRecord {
  /**
   * published: in the list. range: a record of the range only, some smaller number does better. beyond: greater than all
   * that is published, and above the end of the list. wrong: the list has another value, or lacks it.
   */
  standing: "published" | "range" | "beyond" | "wrong";
}

const LISTS: Record<RecordKind, ReadonlyMap<bigint, bigint>> = {
  delay: new Map(DELAYS.map(([n, value]) => [BigInt(n), BigInt(value)])),
  path: new Map(PATHS.map(([n, value]) => [BigInt(n), BigInt(value)])),
};

/** The published list of a kind, ascending. */
export function published(kind: RecordKind): RangeRecord[] {
  return [...LISTS[kind]].map(([n, value]) => ({ n, value }));
}

/** Up to where the lists are complete. */
export function complete(kind: RecordKind): bigint {
  return [...LISTS[kind].keys()].at(-1) as bigint;
}

/** The published records below a number. */
function bestBelow(kind: RecordKind, n: bigint): bigint {
  let best = -1n;
  for (const [each, value] of LISTS[kind]) if (each < n && value > best) best = value;
  return best;
}

export function compare(kind: RecordKind, found: readonly RangeRecord[]): Compared[] {
  return found.map((record) => ({ ...record, standing: standing(kind, record) }));
}

function standing(kind: RecordKind, { n, value }: RangeRecord): Compared["standing"] {
  const listed = LISTS[kind].get(n);
  if (listed !== undefined) return listed === value ? "published" : "wrong";
  if (value <= bestBelow(kind, n)) return "range";
  return n > complete(kind) ? "beyond" : "wrong";
}

/** Published records of [first, end) that a finished range should have found and did not. */
export function missing(kind: RecordKind, found: readonly RangeRecord[], first: bigint, end: bigint): RangeRecord[] {
  const had = new Set(found.map((record) => record.n));
  return published(kind).filter(({ n }) => n >= first && n < end && !had.has(n));
}
