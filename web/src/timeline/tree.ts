/** The spawn tree, the time of its subtrees in a window, and its layout. */

import { NONE, type Trace } from "./model";

export interface SpawnTree {
  /** Children of thread i, from children[first[i]] to children[first[i + 1]], ordered by number. */
  firstChild: Uint32Array;
  children: Uint32Array;
  roots: Uint32Array;
  /** Number of threads in each subtree, including its root. */
  count: Uint32Array;
  height: Uint8Array;
}

export function buildTree({ threads }: Trace): SpawnTree {
  const { parent, number } = threads;
  const size = parent.length;
  const first = new Uint32Array(size + 1);
  for (const each of parent) if (each !== NONE) first[each + 1] = (first[each + 1] as number) + 1;
  for (let thread = 0; thread < size; thread += 1)
    first[thread + 1] = (first[thread + 1] as number) + (first[thread] as number);
  const order = Uint32Array.from(parent.keys()).sort(
    (left, right) => (number[left] as number) - (number[right] as number),
  );
  const children = new Uint32Array(first[size] as number);
  const free = first.slice();
  for (const thread of order) {
    const above = parent[thread] as number;
    if (above === NONE) continue;
    children[free[above] as number] = thread;
    free[above] = (free[above] as number) + 1;
  }
  const tree: SpawnTree = {
    firstChild: first,
    children,
    roots: order.filter((thread) => parent[thread] === NONE),
    count: new Uint32Array(size).fill(1),
    height: new Uint8Array(size),
  };
  for (let thread = size - 1; thread >= 0; thread -= 1) {
    const above = parent[thread] as number;
    if (above === NONE) continue;
    tree.count[above] = (tree.count[above] as number) + (tree.count[thread] as number);
    tree.height[above] = Math.max(tree.height[above] as number, (tree.height[thread] as number) + 1);
  }
  return tree;
}

/** Return the children of a thread, or the roots for NONE. */
export function childrenOf(tree: SpawnTree, thread: number): Uint32Array {
  return thread === NONE ? tree.roots : tree.children.subarray(tree.firstChild[thread], tree.firstChild[thread + 1]);
}

export interface SubtreeTimes {
  /** Time on cores within the window, by subtree. */
  time: Float64Array;
  /** Number of each subtree's threads that were on a core within the window. */
  activeThreads: Uint32Array;
  total: number;
  threads: number;
}

/** Sum the time on cores between t0 and t1 over subtrees. */
export function sumSubtrees(trace: Trace, t0: number, t1: number): SubtreeTimes {
  const { threads, start, end, thread, kind } = trace;
  const time = new Float64Array(threads.parent.length);
  const seen = new Uint32Array(time.length);
  for (let slice = 0; slice < start.length; slice += 1) {
    const sliceThread = thread[slice] as number;
    // A core held by a waiting thread does no work.
    if (sliceThread === NONE || kind[slice] === 1) continue;
    const part = Math.min(t1, end[slice] as number) - Math.max(t0, start[slice] as number);
    if (part < 0) continue;
    time[sliceThread] = (time[sliceThread] as number) + part;
    seen[sliceThread] = 1;
  }
  let [total, count] = [0, 0];
  for (let each = time.length - 1; each >= 0; each -= 1) {
    const above = threads.parent[each] as number;
    if (above === NONE) {
      total += time[each] as number;
      count += seen[each] as number;
    } else {
      time[above] = (time[above] as number) + (time[each] as number);
      seen[above] = (seen[above] as number) + (seen[each] as number);
    }
  }
  return { time, activeThreads: seen, total, threads: count };
}

/** Return the path from a root into the heaviest subtree of each level. */
export function heaviestPath(tree: SpawnTree, { time }: SubtreeTimes): number[] {
  const path: number[] = [];
  for (let at = NONE; ; ) {
    let best = NONE;
    for (const child of childrenOf(tree, at))
      if (best === NONE || (time[child] as number) > (time[best] as number)) best = child;
    if (best === NONE) return path;
    path.push(best);
    at = best;
  }
}

/** A piece of an icicle; without a thread, it represents several narrow ones. */
export interface IciclePiece {
  thread: number;
  row: number;
  x: number;
  width: number;
  /** Number of represented threads, including their subtrees. */
  count: number;
}

const MIN_PIECE_WIDTH = 2;
const MAX_PIECES = 20_000;

/** Return rows of pieces for the subtree below `root` (NONE for all), with widths that show their time. */
export function layOutIcicle(
  tree: SpawnTree,
  sums: SubtreeTimes,
  root: number,
  width: number,
  rows: number,
): IciclePiece[] {
  const pieces: IciclePiece[] = [];
  const total = root === NONE ? sums.total : (sums.time[root] as number);
  if (!(total > 0)) return pieces;
  const scale = width / total;
  const addPiece = (thread: number, row: number, x: number) => {
    const wide = (sums.time[thread] as number) * scale;
    pieces.push({ thread, row, x, width: wide, count: sums.activeThreads[thread] as number });
    // The thread's own time is at the right with nothing below, so that deep trees grow along the left edge.
    spread(childrenOf(tree, thread), row + 1, x);
  };
  const spread = (threads: Uint32Array, row: number, from: number) => {
    if (row >= rows) return;
    let x = from;
    let heap: IciclePiece | undefined;
    for (const thread of threads) {
      const wide = (sums.time[thread] as number) * scale;
      if (!wide) continue;
      if (wide >= MIN_PIECE_WIDTH && pieces.length < MAX_PIECES) {
        heap = undefined;
        addPiece(thread, row, x);
      } else if (heap) {
        heap.width += wide;
        heap.count += sums.activeThreads[thread] as number;
      } else {
        heap = { thread: NONE, row, x, width: wide, count: sums.activeThreads[thread] as number };
        pieces.push(heap);
      }
      x += wide;
    }
  };
  if (root === NONE) spread(tree.roots, 0, 0);
  else addPiece(root, 0, 0);
  return pieces;
}
