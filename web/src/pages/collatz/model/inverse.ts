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
