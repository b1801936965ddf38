/**
 * Groups of structurally equivalent vertices of a graph, and boxes that show a vertex or a whole group. Pure functions.
 */

import { linked, type Graph } from "./structure";

/** Number of refinement rounds, which is the maximum distance in edges at which differences are detected. */
const ROUNDS = 24;
const PRIMES = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d] as const;

/** Mix two 32-bit numbers into a hash. */
function mixed(left: number, right: number): number {
  let value = Math.imul(left ^ (right + 0x7f4a7c15), PRIMES[0]);
  value = Math.imul(value ^ (value >>> 15), PRIMES[1]);
  return value ^ (value >>> 13);
}

/** Number keys from 0 in the order of their first appearance. */
function numbered<T>(keys: Iterable<T>, size: number): Int32Array {
  const numbers = new Map<T, number>();
  const found = new Int32Array(size);
  let place = 0;
  for (const key of keys) {
    const known = numbers.get(key) ?? numbers.size;
    numbers.set(key, known);
    found[place] = known;
    place += 1;
  }
  return found;
}

/**
 * Return the group of each vertex. Vertices of a group have the same type and layer, and equally many parents and
 * children in every other group. A hundred parallel chains are three groups instead of three hundred vertices.
 */
export function groupsOf({ size, parents, children, layer }: Graph, types: readonly string[]): Int32Array {
  let groups = numbered(
    types.map((type, vertex) => `${layer[vertex]} ${type}`),
    size,
  );
  let count = new Set(groups).size;
  for (let round = 0; round < ROUNDS && count < size; round += 1) {
    const keys = new Float64Array(size);
    for (let vertex = 0; vertex < size; vertex += 1) {
      // A sum does not depend on the order. Two sums make accidental collisions unlikely.
      let [up, down] = [0, 0];
      for (const parent of parents[vertex] as readonly number[]) up = (up + mixed(groups[parent] as number, 1)) | 0;
      for (const child of children[vertex] as readonly number[]) down = (down + mixed(groups[child] as number, 2)) | 0;
      const high = mixed(mixed(groups[vertex] as number, up), down) >>> 11;
      keys[vertex] = high * 2 ** 32 + (mixed(mixed(down, PRIMES[2]), up ^ (groups[vertex] as number)) >>> 0);
    }
    const next = numbered(keys, size);
    const found = new Set(next).size;
    if (found === count) break;
    [groups, count] = [next, found];
  }
  return groups;
}

export interface Boxes {
  /** Box number of each vertex. */
  of: Int32Array;
  /** Vertices of each box, in ascending order. */
  members: readonly (readonly number[])[];
  /** Graph of the boxes. */
  graph: Graph;
}

/**
 * Return the boxes of a graph. A group of more than `most` vertices is one box unless it is in `open`; other vertices
 * have their own box.
 */
export function boxesOf(
  graph: Graph,
  groups: Int32Array,
  most: number,
  open: (group: number) => boolean = () => false,
): Boxes {
  const counts = new Int32Array(graph.size);
  for (const group of groups) counts[group] = (counts[group] as number) + 1;
  const folded = [...counts].map((count, group) => count > most && !open(group));
  const of = numbered(
    [...groups].map((group, vertex) => (folded[group] ? -1 - group : vertex)),
    graph.size,
  );
  const members: number[][] = [];
  const parents: Set<number>[] = [];
  for (let vertex = 0; vertex < graph.size; vertex += 1) {
    const box = of[vertex] as number;
    members[box] ??= [];
    members[box]?.push(vertex);
    parents[box] ??= new Set();
    for (const parent of graph.parents[vertex] as readonly number[]) parents[box]?.add(of[parent] as number);
  }
  return { of, members, graph: linked(parents.map((each) => [...each])) };
}
