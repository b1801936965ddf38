/**
 * Groups of structurally equivalent vertices of a graph, and boxes that show a vertex or a whole group. Pure functions.
 */

import { linkVertices, type Graph } from "./structure";

/** Number of refinement rounds, which is the maximum distance in edges at which differences are detected. */
const REFINEMENT_ROUNDS = 24;
const PRIMES = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d] as const;

/** Mix two 32-bit numbers into a hash. */
function mixHash(left: number, right: number): number {
  let value = Math.imul(left ^ (right + 0x7f4a7c15), PRIMES[0]);
  value = Math.imul(value ^ (value >>> 15), PRIMES[1]);
  return value ^ (value >>> 13);
}

/** Number keys from 0 in the order of their first appearance. */
function numberKeys<T>(keys: Iterable<T>, size: number): Int32Array {
  const numbers = new Map<T, number>();
  const result = new Int32Array(size);
  let index = 0;
  for (const key of keys) {
    const number = numbers.get(key) ?? numbers.size;
    numbers.set(key, number);
    result[index] = number;
    index += 1;
  }
  return result;
}

/**
 * Return the group of each vertex. Vertices of a group have the same type and layer, and equally many parents and
 * children in every other group. A hundred parallel chains are three groups instead of three hundred vertices.
 */
export function findGroups({ size, parents, children, layer }: Graph, types: readonly string[]): Int32Array {
  let groups = numberKeys(
    types.map((type, vertex) => `${layer[vertex]} ${type}`),
    size,
  );
  let count = new Set(groups).size;
  for (let round = 0; round < REFINEMENT_ROUNDS && count < size; round += 1) {
    const keys = new Float64Array(size);
    for (let vertex = 0; vertex < size; vertex += 1) {
      // A sum does not depend on the order. Two sums make accidental collisions unlikely.
      let [up, down] = [0, 0];
      for (const parent of parents[vertex] as readonly number[]) up = (up + mixHash(groups[parent] as number, 1)) | 0;
      for (const child of children[vertex] as readonly number[])
        down = (down + mixHash(groups[child] as number, 2)) | 0;
      const high = mixHash(mixHash(groups[vertex] as number, up), down) >>> 11;
      keys[vertex] = high * 2 ** 32 + (mixHash(mixHash(down, PRIMES[2]), up ^ (groups[vertex] as number)) >>> 0);
    }
    const next = numberKeys(keys, size);
    const found = new Set(next).size;
    if (found === count) break;
    [groups, count] = [next, found];
  }
  return groups;
}

export interface Boxes {
  /** Box number of each vertex. */
  boxOfVertex: Int32Array;
  /** Vertices of each box, in ascending order. */
  members: readonly (readonly number[])[];
  /** Graph of the boxes. */
  graph: Graph;
}

/**
 * Return the boxes of a graph. A group of more than `maxGroup` vertices is one box unless `isOpen` accepts it; other
 * vertices have their own box.
 */
export function createBoxes(
  graph: Graph,
  groups: Int32Array,
  maxGroup: number,
  isOpen: (group: number) => boolean = () => false,
): Boxes {
  const counts = new Int32Array(graph.size);
  for (const group of groups) counts[group] = (counts[group] as number) + 1;
  const isFolded = [...counts].map((count, group) => count > maxGroup && !isOpen(group));
  const boxOfVertex = numberKeys(
    [...groups].map((group, vertex) => (isFolded[group] ? -1 - group : vertex)),
    graph.size,
  );
  const members: number[][] = [];
  const parents: Set<number>[] = [];
  for (let vertex = 0; vertex < graph.size; vertex += 1) {
    const box = boxOfVertex[vertex] as number;
    members[box] ??= [];
    members[box]?.push(vertex);
    parents[box] ??= new Set();
    for (const parent of graph.parents[vertex] as readonly number[]) parents[box]?.add(boxOfVertex[parent] as number);
  }
  return { boxOfVertex, members, graph: linkVertices(parents.map((each) => [...each])) };
}
