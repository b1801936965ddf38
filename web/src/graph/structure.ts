/** A directed acyclic graph with numbered vertices, their dependencies and layers. Pure functions. */

export interface Item {
  id: string;
  type: string;
  /** IDs of the items on which it depends. */
  dependencies: readonly string[];
}

export interface Graph {
  size: number;
  parents: readonly (readonly number[])[];
  children: readonly (readonly number[])[];
  /** Vertices in topological order; vertices of a cycle, which no cluster accepts, are at the end. */
  order: readonly number[];
  /** Length of the longest path to each vertex from a vertex without parents. */
  layer: Int32Array;
  layers: number;
}

/** Build the graph of items, numbered in their order. Ignore dependencies on unknown items. */
export function buildGraph(items: readonly Item[]): Graph {
  const vertices = new Map(items.map(({ id }, number) => [id, number]));
  const edges = items.map(({ dependencies }) => {
    const parents = dependencies.map((id) => vertices.get(id)).filter((each) => each !== undefined);
    return [...new Set(parents)];
  });
  return linkVertices(edges);
}

/** Build the graph from each vertex's parents. */
export function linkVertices(parents: readonly (readonly number[])[]): Graph {
  const size = parents.length;
  const children: number[][] = Array.from({ length: size }, () => []);
  const missingParents = new Int32Array(size);
  for (const [vertex, vertexParents] of parents.entries()) {
    missingParents[vertex] = vertexParents.length;
    for (const parent of vertexParents) children[parent]?.push(vertex);
  }
  const layer = new Int32Array(size);
  const order: number[] = [];
  for (let vertex = 0; vertex < size; vertex += 1) if (!missingParents[vertex]) order.push(vertex);
  for (let at = 0; at < order.length; at += 1) {
    const vertex = order[at] as number;
    for (const child of children[vertex] as number[]) {
      layer[child] = Math.max(layer[child] as number, (layer[vertex] as number) + 1);
      missingParents[child] = (missingParents[child] as number) - 1;
      if (!missingParents[child]) order.push(child);
    }
  }
  for (let vertex = 0; order.length < size && vertex < size; vertex += 1)
    if (missingParents[vertex]) order.push(vertex);
  return { size, parents, children, order, layer, layers: layer.reduce((max, each) => Math.max(max, each), -1) + 1 };
}

/** Return all ancestors of a vertex, or with `down` all descendants. */
export function findReachable({ parents, children }: Graph, from: number, down = false): Set<number> {
  const next = down ? children : parents;
  const found = new Set<number>();
  const pending = [from];
  for (let vertex = pending.pop(); vertex !== undefined; vertex = pending.pop()) {
    for (const neighbor of next[vertex] ?? []) {
      if (found.has(neighbor)) continue;
      found.add(neighbor);
      pending.push(neighbor);
    }
  }
  return found;
}
