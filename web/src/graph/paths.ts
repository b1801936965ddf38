/** Paths through a graph that explain when its last vertex finished. Pure functions. */

import type { Graph } from "./structure";

export interface Way {
  /** Vertices from first to last. */
  vertices: readonly number[];
  /** Sum of the vertices' weights. */
  length: number;
}

/** Return the path with the largest sum of weights, which is a lower bound for the duration on any cluster. */
export function criticalPath({ order, parents }: Graph, weight: (vertex: number) => number): Way {
  const length = new Map<number, number>();
  const upTo = (vertex: number) => length.get(vertex) ?? 0;
  const longest = (vertices: readonly number[]) =>
    vertices.reduce<number | undefined>(
      (most, each) => (most === undefined || upTo(each) > upTo(most) ? each : most),
      undefined,
    );
  for (const vertex of order) {
    const before = longest(parents[vertex] as readonly number[]);
    length.set(vertex, (before === undefined ? 0 : upTo(before)) + weight(vertex));
  }
  const last = longest(order);
  const vertices = traced(last, (vertex) => longest(parents[vertex] as readonly number[]));
  return { vertices, length: last === undefined ? 0 : upTo(last) };
}

/** Return the path that delayed a vertex, always going back to the parent that finished last. */
export function wayTo({ parents }: Graph, vertex: number, ended: (vertex: number) => number): readonly number[] {
  return traced(vertex, (each) => {
    const own = parents[each] as readonly number[];
    return own.reduce<number | undefined>(
      (latest, parent) => (latest === undefined || ended(parent) > ended(latest) ? parent : latest),
      undefined,
    );
  });
}

function traced(last: number | undefined, before: (vertex: number) => number | undefined): number[] {
  const vertices: number[] = [];
  const seen = new Set<number>();
  for (let vertex = last; vertex !== undefined && !seen.has(vertex); vertex = before(vertex)) {
    vertices.push(vertex);
    seen.add(vertex);
  }
  return vertices.reverse();
}
