/** Paths through a graph that explain when its last vertex finished. Pure functions. */

import type { Graph } from "./structure";

export interface Path {
  /** Vertices from first to last. */
  vertices: readonly number[];
  /** Sum of the vertices' weights. */
  length: number;
}

/** Return the path with the largest sum of weights, which is a lower bound for the duration on any cluster. */
export function criticalPath({ order, parents }: Graph, weight: (vertex: number) => number): Path {
  const length = new Map<number, number>();
  const pathLength = (vertex: number) => length.get(vertex) ?? 0;
  const longest = (vertices: readonly number[]) =>
    vertices.reduce<number | undefined>(
      (max, each) => (max === undefined || pathLength(each) > pathLength(max) ? each : max),
      undefined,
    );
  for (const vertex of order) {
    const previous = longest(parents[vertex] as readonly number[]);
    length.set(vertex, (previous === undefined ? 0 : pathLength(previous)) + weight(vertex));
  }
  const last = longest(order);
  const vertices = tracePath(last, (vertex) => longest(parents[vertex] as readonly number[]));
  return { vertices, length: last === undefined ? 0 : pathLength(last) };
}

/** Return the path that delayed a vertex, always going back to the parent that finished last. */
export function delayPath({ parents }: Graph, vertex: number, endTime: (vertex: number) => number): readonly number[] {
  return tracePath(vertex, (each) => {
    const own = parents[each] as readonly number[];
    return own.reduce<number | undefined>(
      (latest, parent) => (latest === undefined || endTime(parent) > endTime(latest) ? parent : latest),
      undefined,
    );
  });
}

function tracePath(last: number | undefined, previous: (vertex: number) => number | undefined): number[] {
  const vertices: number[] = [];
  const seen = new Set<number>();
  for (let vertex = last; vertex !== undefined && !seen.has(vertex); vertex = previous(vertex)) {
    vertices.push(vertex);
    seen.add(vertex);
  }
  return vertices.reverse();
}
