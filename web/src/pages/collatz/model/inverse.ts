/** The tree that leads back from a number: what comes to it in one step. Pure. */

/** Numbers whose next value is v: 2v, and (v-1)/3 where that is odd and leads no way round 1. */
export function before(value: bigint): bigint[] {
  const values = [2n * value];
  if (value > 4n && value % 6n === 4n) values.push((value - 1n) / 3n);
  return values;
}

export interface Branch {
  value: bigint;
  depth: number;
  /** There is more that is not shown. */
  folded: boolean;
  children: Branch[];
}

export interface Growth {
  /** Levels that are open without being asked for. */
  depth: number;
  /** Opened or closed by hand, by value. */
  toggled: ReadonlySet<string>;
  /** Stop at multiples of 3: only doublings lead to them. */
  prune: boolean;
  /** Branches at most; what is beyond stays folded. */
  most: number;
}

/** The tree above a root, breadth first, so that a limit folds the farthest. */
export function grow(
  root: bigint,
  { depth, toggled, prune, most }: Growth,
): { root: Branch; count: number; cut: boolean } {
  const top: Branch = { value: root, depth: 0, folded: true, children: [] };
  const queue = [top];
  let [count, cut] = [1, false];
  for (const branch of queue) {
    const open = branch.depth < depth !== toggled.has(String(branch.value));
    const barren = prune && branch.value % 3n === 0n;
    if (barren) branch.folded = false;
    if (!open || barren) continue;
    const values = before(branch.value);
    if (count + values.length > most) {
      cut = true;
      continue;
    }
    branch.folded = false;
    branch.children = values.map((value) => ({ value, depth: branch.depth + 1, folded: true, children: [] }));
    count += values.length;
    queue.push(...branch.children);
  }
  return { root: top, count, cut };
}

export interface Placed {
  branch: Branch;
  /** In rows from the top; leaves have one each, what bears them stands in their middle. */
  row: number;
  from: Placed | undefined;
}

/** Places of all branches, each after what it grows from. */
export function placed(root: Branch): Placed[] {
  const all: Placed[] = [];
  let leaves = 0;
  const visit = (branch: Branch, from: Placed | undefined): Placed => {
    const self: Placed = { branch, row: 0, from };
    all.push(self);
    const rows = branch.children.map((each) => visit(each, self).row);
    if (rows.length) self.row = ((rows[0] as number) + (rows.at(-1) as number)) / 2;
    else {
      self.row = leaves;
      leaves += 1;
    }
    return self;
  };
  visit(root, undefined);
  return all;
}

/** A branch on the plane; distances in pixels, y downwards. */
export interface Spot {
  branch: Branch;
  from: Spot | undefined;
  x: number;
  y: number;
  /** Direction of its name, in radians: outwards at the tips, level elsewhere. */
  angle: number;
  /** There is room for its name. */
  named: boolean;
}

/** Part of the circle that branches take: below is room for the stem. */
const FAN = (2 * Math.PI * 320) / 360;
/** Room that a name needs: between lines, for a letter, from its mark. */
const NAME = { line: 13, letter: 7.4, gap: 9 };
/** An ellipse is so much longer than wide at most. */
const MOST_STRETCH = 1.7;

/**
 * Places of all branches around the first one that divides, within `width` x `height` around (0, 0): what comes before
 * it is a stem from below. Each comes after what it grows from.
 */
export function around(root: Branch, width: number, height: number): Spot[] {
  const places = placed(root);
  const leaves = 1 + Math.max(...places.map(({ row }) => row));
  const deepest = Math.max(...places.map(({ branch }) => branch.depth));
  const stem = places.find(({ branch }) => branch.children.length > 1)?.branch.depth ?? deepest;
  const radius = Math.max(20, Math.min(width, height) / 2);
  const [wide, high] = [width, height].map((side) => Math.min(MOST_STRETCH, side / (2 * radius))) as [number, number];
  const ring = radius / Math.max(1, deepest - stem);
  const joint = leaves > 1 ? Math.min(ring, (0.9 * radius) / Math.max(1, stem)) : (2 * radius) / Math.max(1, stem);
  const foot = leaves > 1 ? 0 : -radius;
  const spots = new Map<Placed, Spot>();
  for (const place of places) {
    const { branch, row } = place;
    const far = Math.max(0, ring * (branch.depth - stem));
    const turn = -Math.PI / 2 + (leaves > 1 ? (row / (leaves - 1) - 0.5) * FAN : 0);
    const [x, y] = [far * wide * Math.cos(turn), far * high * Math.sin(turn)];
    const below = far ? 0 : foot + joint * Math.max(0, stem - branch.depth);
    const tip = far > 0 && branch.children.length === 0;
    const from = place.from && spots.get(place.from);
    spots.set(place, { branch, from, x, y: y + below, angle: tip ? Math.atan2(y, x) : 0, named: false });
  }
  return named([...spots.values()], (FAN * radius) / leaves >= NAME.line);
}

/** Names the tips where they have room, and of the others those that hide nothing. */
function named(spots: Spot[], tips: boolean): Spot[] {
  const written: Spot[] = [];
  const wide = ({ branch }: Spot) => NAME.gap + NAME.letter * (String(branch.value).length + 1);
  for (const spot of spots) {
    if (spot.angle) {
      spot.named = tips;
      continue;
    }
    const hidden = (other: Spot, more: number) =>
      other !== spot &&
      Math.abs(other.y - spot.y) < NAME.line &&
      other.x + more > spot.x &&
      other.x < spot.x + wide(spot);
    spot.named = !spots.some((other) => hidden(other, 6)) && !written.some((other) => hidden(other, wide(other)));
    if (spot.named) written.push(spot);
  }
  return spots;
}

/** The values from one branch down to the root. */
export function pathOf(places: readonly { branch: Branch; from: unknown }[], value: string): ReadonlySet<bigint> {
  type Step = { branch: Branch; from: Step | undefined } | undefined;
  let at = places.find(({ branch }) => String(branch.value) === value) as Step;
  const path = new Set<bigint>();
  for (; at; at = at.from) path.add(at.branch.value);
  return path;
}

function isPowerOfTwo(value: bigint): boolean {
  return (value & (value - 1n)) === 0n;
}

/** Nodes looked at before the search is given up. */
const PATIENCE = 200_000;

/**
 * The number of [first, end) with the fewest steps to 1, powers of two left out, the least of several; undefined when
 * it was not found within a bounded search.
 */
export function fastest(first: bigint, end: bigint): { n: bigint; steps: number } | undefined {
  let nodes = 0;
  let least: bigint | undefined;
  const search = (value: bigint, left: number): void => {
    nodes += 1;
    if (nodes > PATIENCE || value << BigInt(left) < first) return;
    if (left === 0) {
      if (value < end && !isPowerOfTwo(value) && (least === undefined || value < least)) least = value;
      return;
    }
    for (const each of before(value)) search(each, left - 1);
  };
  for (let steps = first.toString(2).length - 1; nodes <= PATIENCE; steps += 1) {
    search(1n, steps);
    if (least !== undefined && nodes <= PATIENCE) return { n: least, steps };
  }
  return undefined;
}
