/** Ways through a graph that say what its end waited for. Pure. */

import type { Graph } from "./structure";

export interface Way {
  /** From the first to the last. */
  nodes: readonly number[];
  /** Sum of their weights. */
  length: number;
}

/** The way with the largest sum of weights: no cluster of any size ends sooner. */
export function criticalPath({ order, parents }: Graph, weight: (node: number) => number): Way {
  const length = new Map<number, number>();
  const upTo = (node: number) => length.get(node) ?? 0;
  const longest = (nodes: readonly number[]) =>
    nodes.reduce<number | undefined>(
      (most, each) => (most === undefined || upTo(each) > upTo(most) ? each : most),
      undefined,
    );
  for (const node of order) {
    const before = longest(parents[node] as readonly number[]);
    length.set(node, (before === undefined ? 0 : upTo(before)) + weight(node));
  }
  const last = longest(order);
  const nodes = traced(last, (node) => longest(parents[node] as readonly number[]));
  return { nodes, length: last === undefined ? 0 : upTo(last) };
}

/** The way that led to a node: back from it, always to the parent that ended last. */
export function wayTo({ parents }: Graph, node: number, ended: (node: number) => number): readonly number[] {
  return traced(node, (each) => {
    const own = parents[each] as readonly number[];
    return own.reduce<number | undefined>(
      (latest, parent) => (latest === undefined || ended(parent) > ended(latest) ? parent : latest),
      undefined,
    );
  });
}

function traced(last: number | undefined, before: (node: number) => number | undefined): number[] {
  const nodes: number[] = [];
  const seen = new Set<number>();
  for (let node = last; node !== undefined && !seen.has(node); node = before(node)) {
    nodes.push(node);
    seen.add(node);
  }
  return nodes.reverse();
}
