/** The inverse tree: numbers that reach a root. Pure functions. */

/** Return the predecessors of v: 2v, and (v-1)/3 if it is odd and does not lead around 1. */
export function predecessors(value: bigint): bigint[] {
  const values = [2n * value];
  if (value > 4n && value % 6n === 4n) values.push((value - 1n) / 3n);
  return values;
}

export interface Branch {
  value: bigint;
  depth: number;
  /** True if further branches are hidden. */
  isFolded: boolean;
  children: Branch[];
}

export interface Growth {
  /** Number of levels that are open by default. */
  depth: number;
  /** Values that the user opened or closed. */
  toggledValues: ReadonlySet<string>;
  /** Stop at multiples of 3, which are reached only by doubling. */
  isPruned: boolean;
  /** Maximum number of branches; others stay folded. */
  maxBranches: number;
}

/** Build the tree above a root breadth first, so that the limit folds the most distant branches. */
export function growTree(
  root: bigint,
  { depth, toggledValues: toggled, isPruned: prune, maxBranches: max }: Growth,
): { root: Branch; count: number; isCut: boolean } {
  const top: Branch = { value: root, depth: 0, isFolded: true, children: [] };
  const queue = [top];
  let [count, isCut] = [1, false];
  for (const branch of queue) {
    const open = branch.depth < depth !== toggled.has(String(branch.value));
    const barren = prune && branch.value % 3n === 0n;
    if (barren) branch.isFolded = false;
    if (!open || barren) continue;
    const values = predecessors(branch.value);
    if (count + values.length > max) {
      isCut = true;
      continue;
    }
    branch.isFolded = false;
    branch.children = values.map((value) => ({ value, depth: branch.depth + 1, isFolded: true, children: [] }));
    count += values.length;
    queue.push(...branch.children);
  }
  return { root: top, count, isCut };
}

export interface PlacedBranch {
  branch: Branch;
  /** Row from the top; each leaf has one row, and other branches are centered. */
  row: number;
  from: PlacedBranch | undefined;
}

/** Return the positions of all branches, each after its parent. */
export function placeBranches(root: Branch): PlacedBranch[] {
  const all: PlacedBranch[] = [];
  let leaves = 0;
  const visit = (branch: Branch, from: PlacedBranch | undefined): PlacedBranch => {
    const self: PlacedBranch = { branch, row: 0, from };
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

/** A branch on the plane; distances are in pixels, with y downwards. */
export interface BranchPosition {
  branch: Branch;
  from: BranchPosition | undefined;
  x: number;
  y: number;
  /** Direction of the label in radians: outwards at the tips, horizontal elsewhere. */
  angle: number;
  /** True if there is space for the label. */
  hasLabel: boolean;
}

/** Angle of the fan of branches; the rest is space for the stem. */
const FAN_ANGLE = (2 * Math.PI * 320) / 360;
/** Space for a label: line height, letter width and distance from the mark. */
const LABEL_SIZE = { line: 13, letter: 7.4, gap: 9 };
/** Maximum ratio of the ellipse's axes. */
const MAX_STRETCH = 1.7;

/**
 * Return positions of all branches around the first branching point, within `width` x `height` around (0, 0). Earlier
 * branches form a stem below. Each branch comes after its parent.
 */
export function layOutAround(root: Branch, width: number, height: number): BranchPosition[] {
  const places = placeBranches(root);
  const leaves = 1 + Math.max(...places.map(({ row }) => row));
  const deepest = Math.max(...places.map(({ branch }) => branch.depth));
  const stem = places.find(({ branch }) => branch.children.length > 1)?.branch.depth ?? deepest;
  const radius = Math.max(20, Math.min(width, height) / 2);
  const [wide, high] = [width, height].map((side) => Math.min(MAX_STRETCH, side / (2 * radius))) as [number, number];
  const ring = radius / Math.max(1, deepest - stem);
  const joint = leaves > 1 ? Math.min(ring, (0.9 * radius) / Math.max(1, stem)) : (2 * radius) / Math.max(1, stem);
  const foot = leaves > 1 ? 0 : -radius;
  const spots = new Map<PlacedBranch, BranchPosition>();
  for (const branchRow of places) {
    const { branch, row } = branchRow;
    const far = Math.max(0, ring * (branch.depth - stem));
    const turn = -Math.PI / 2 + (leaves > 1 ? (row / (leaves - 1) - 0.5) * FAN_ANGLE : 0);
    const [x, y] = [far * wide * Math.cos(turn), far * high * Math.sin(turn)];
    const below = far ? 0 : foot + joint * Math.max(0, stem - branch.depth);
    const tip = far > 0 && branch.children.length === 0;
    const from = branchRow.from && spots.get(branchRow.from);
    spots.set(branchRow, { branch, from, x, y: y + below, angle: tip ? Math.atan2(y, x) : 0, hasLabel: false });
  }
  return assignLabels([...spots.values()], (FAN_ANGLE * radius) / leaves >= LABEL_SIZE.line);
}

/** Decide which tips have space for labels, and which other labels do not overlap. */
function assignLabels(spots: BranchPosition[], tips: boolean): BranchPosition[] {
  const written: BranchPosition[] = [];
  const wide = ({ branch }: BranchPosition) => LABEL_SIZE.gap + LABEL_SIZE.letter * (String(branch.value).length + 1);
  for (const spot of spots) {
    if (spot.angle) {
      spot.hasLabel = tips;
      continue;
    }
    const hidden = (other: BranchPosition, more: number) =>
      other !== spot &&
      Math.abs(other.y - spot.y) < LABEL_SIZE.line &&
      other.x + more > spot.x &&
      other.x < spot.x + wide(spot);
    spot.hasLabel = !spots.some((other) => hidden(other, 6)) && !written.some((other) => hidden(other, wide(other)));
    if (spot.hasLabel) written.push(spot);
  }
  return spots;
}

/** Return the values from a branch down to the root. */
export function findPath(places: readonly { branch: Branch; from: unknown }[], value: string): ReadonlySet<bigint> {
  type Step = { branch: Branch; from: Step | undefined } | undefined;
  let at = places.find(({ branch }) => String(branch.value) === value) as Step;
  const path = new Set<bigint>();
  for (; at; at = at.from) path.add(at.branch.value);
  return path;
}

function isPowerOfTwo(value: bigint): boolean {
  return (value & (value - 1n)) === 0n;
}

/** Maximum number of nodes to search. */
const MAX_NODES = 200_000;

/**
 * Return the number of [first, end) with the fewest steps to 1, without powers of two, and the smallest of several.
 * Undefined if a bounded search does not find it.
 */
export function findFastest(first: bigint, end: bigint): { n: bigint; steps: number } | undefined {
  let nodes = 0;
  let min: bigint | undefined;
  const search = (value: bigint, left: number): void => {
    nodes += 1;
    if (nodes > MAX_NODES || value << BigInt(left) < first) return;
    if (left === 0) {
      if (value < end && !isPowerOfTwo(value) && (min === undefined || value < min)) min = value;
      return;
    }
    for (const each of predecessors(value)) search(each, left - 1);
  };
  for (let steps = first.toString(2).length - 1; nodes <= MAX_NODES; steps += 1) {
    search(1n, steps);
    if (min !== undefined && nodes <= MAX_NODES) return { n: min, steps };
  }
  return undefined;
}
