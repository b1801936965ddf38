/** Positions of boxes and edges of a graph, in layers from left to right. Pure functions; pixels at scale 1. */

import { orderLayers, type Layered } from "./order";
import { spacePositions } from "./spacing";
import type { Graph } from "./structure";

export const BOX = { width: 176, height: 36 } as const;
/** Vertical gap between boxes of a layer, and between a box and a passing edge. */
const BOX_GAP = 12;
const ROUTING_POINT_HEIGHT = 14;
/** Minimum gap between layers, which grows with the number of edges. */
const MIN_LAYER_GAP = 56;
const MAX_LAYER_GAP = 160;
/** Maximum number of routing points. In larger graphs, long edges are straight. */
const MAX_ROUTING_POINTS = 20_000;
/** A layer with more boxes than this number times the square root of all boxes is split into columns. */
const COLUMN_FACTOR = 2;
const MIN_ROWS = 24;

export interface Edge {
  from: number;
  to: number;
  /** Alternating x and y coordinates: from a box past intermediate layers to another box. */
  points: Float32Array;
}

export interface Layout {
  /** Left and top coordinates of each box. */
  x: Float32Array;
  y: Float32Array;
  edges: readonly Edge[];
  /** Boxes of each layer, from top to bottom. */
  rows: readonly (readonly number[])[];
  width: number;
  height: number;
}

/** Boxes, and a routing point for each layer that a long edge crosses. */
interface RoutedGraph extends Layered {
  layer: number[];
  /** Routing points of each long edge, keyed by `from * size + to`. */
  routingPoints: Map<number, number[]>;
}

function createRoutedGraph({ size, parents, layer: vertexLayer, layers }: Graph): RoutedGraph {
  let pointCount = 0;
  for (let vertex = 0; vertex < size; vertex += 1)
    for (const parent of parents[vertex] as readonly number[])
      pointCount += (vertexLayer[vertex] as number) - (vertexLayer[parent] as number) - 1;
  const isStraight = pointCount > MAX_ROUTING_POINTS;
  const layer = [...vertexLayer];
  const up: number[][] = Array.from({ length: size }, () => []);
  const down: number[][] = Array.from({ length: size }, () => []);
  const routingPoints = new Map<number, number[]>();
  const connect = (from: number, to: number) => {
    down[from]?.push(to);
    up[to]?.push(from);
  };
  for (let vertex = 0; vertex < size; vertex += 1) {
    for (const parent of parents[vertex] as readonly number[]) {
      const span = (vertexLayer[vertex] as number) - (vertexLayer[parent] as number);
      if (span <= 0 || (isStraight && span > 1)) continue;
      let last = parent;
      const points: number[] = [];
      for (let step = 1; step < span; step += 1) {
        const point = layer.length;
        layer.push((vertexLayer[parent] as number) + step);
        up.push([]);
        down.push([]);
        connect(last, point);
        points.push(point);
        last = point;
      }
      connect(last, vertex);
      if (points.length) routingPoints.set(parent * size + vertex, points);
    }
  }
  const rows: number[][] = Array.from({ length: layers }, () => []);
  for (const [vertex, at] of layer.entries()) rows[at]?.push(vertex);
  return { layer, rows, up, down, routingPoints };
}

/** Number of rounds that move vertices to the mean position of their neighbors. */
const CENTERING_ROUNDS = 4;

/** Return the vertical center of each vertex. */
function computeCenters(net: RoutedGraph, size: number): Float64Array {
  const middle = new Float64Array(net.layer.length);
  const gaps = net.rows.map((row) => row.map((vertex, at) => gapBefore(row[at - 1], vertex, size)));
  for (const [at, row] of net.rows.entries()) {
    let y = 0;
    for (const [index, vertex] of row.entries()) {
      y += index ? (gaps[at]?.[index] as number) : 0;
      middle[vertex] = y;
    }
    for (const vertex of row) middle[vertex] = (middle[vertex] as number) - y / 2;
  }
  const centerRow = (at: number, neighbors: Layered["up"]) => {
    const row = net.rows[at] as number[];
    const wishes = row.map((vertex) => {
      const own = neighbors[vertex] as readonly number[];
      const sum = own.reduce((total, each) => total + (middle[each] as number), 0);
      return own.length ? sum / own.length : (middle[vertex] as number);
    });
    for (const [index, y] of spacePositions(wishes, gaps[at] as number[]).entries()) middle[row[index] as number] = y;
  };
  for (let round = 0; round < CENTERING_ROUNDS; round += 1) {
    for (let at = 1; at < net.rows.length; at += 1) centerRow(at, net.up);
    for (let at = net.rows.length - 2; at >= 0; at -= 1) centerRow(at, net.down);
  }
  return middle;
}

function gapBefore(before: number | undefined, vertex: number, size: number): number {
  const half = (each: number) => (each < size ? (BOX.height + BOX_GAP) / 2 : ROUTING_POINT_HEIGHT / 2);
  return before === undefined ? 0 : half(before) + half(vertex);
}

/** A layer with one or several columns. */
interface Band {
  left: number;
  columns: number;
  /** Number of boxes in a column. */
  rows: number;
}

function computeBands(net: RoutedGraph, size: number): Band[] {
  const maxRows = Math.max(MIN_ROWS, Math.ceil(COLUMN_FACTOR * Math.sqrt(size)));
  const bands: Band[] = [];
  let left = 0;
  for (const row of net.rows) {
    const boxes = row.filter((vertex) => vertex < size).length;
    const columns = Math.max(1, Math.ceil(boxes / maxRows));
    bands.push({ left, columns, rows: Math.ceil(boxes / columns) });
    const edges = row.reduce((sum, vertex) => sum + (net.down[vertex] as readonly number[]).length, 0);
    const layerGap = Math.round(Math.min(MAX_LAYER_GAP, MIN_LAYER_GAP + 6 * Math.sqrt(edges)));
    left += columns * BOX.width + (columns - 1) * BOX_GAP + layerGap;
  }
  return bands;
}

/** Return the positions of all boxes and edges of a graph. */
export function computeLayout(graph: Graph): Layout {
  const { size } = graph;
  const net = createRoutedGraph(graph);
  orderLayers(net);
  const middle = computeCenters(net, size);
  const bands = computeBands(net, size);
  const x = new Float32Array(size);
  const y = new Float32Array(size);
  for (const [at, row] of net.rows.entries())
    placeRow(
      row.filter((vertex) => vertex < size),
      bands[at] as Band,
      middle,
      x,
      y,
    );
  const tops = [...y, ...[...middle].slice(size)];
  const top = tops.reduce((min, each) => Math.min(min, each), Number.POSITIVE_INFINITY);
  for (let vertex = 0; vertex < size; vertex += 1) y[vertex] = Math.round((y[vertex] as number) - top);
  const edges = createEdges(graph, net, bands, middle, top, x, y);
  const rows = net.rows.map((row) => row.filter((vertex) => vertex < size));
  const width = x.reduce((max, each) => Math.max(max, each + BOX.width), 0);
  const height = y.reduce((max, each) => Math.max(max, each + BOX.height), 0);
  return { x, y, edges, rows, width, height };
}

function placeRow(row: readonly number[], band: Band, middle: Float64Array, x: Float32Array, y: Float32Array): void {
  for (const [index, vertex] of row.entries()) {
    const column = Math.floor(index / Math.max(1, band.rows));
    x[vertex] = band.left + column * (BOX.width + BOX_GAP);
    const line = index % Math.max(1, band.rows);
    const isSingleColumn = band.columns === 1;
    y[vertex] = isSingleColumn
      ? (middle[vertex] as number) - BOX.height / 2
      : (line - band.rows / 2) * (BOX.height + BOX_GAP);
  }
}

function createEdges(
  { size, parents }: Graph,
  net: RoutedGraph,
  bands: readonly Band[],
  middle: Float64Array,
  top: number,
  x: Float32Array,
  y: Float32Array,
): Edge[] {
  const edges: Edge[] = [];
  for (let vertex = 0; vertex < size; vertex += 1) {
    for (const parent of parents[vertex] as readonly number[]) {
      const points = [(x[parent] as number) + BOX.width, (y[parent] as number) + BOX.height / 2];
      for (const point of net.routingPoints.get(parent * size + vertex) ?? []) {
        const band = bands[net.layer[point] as number] as Band;
        // The edge crosses a layer with several columns in a straight line, because there is no gap between columns.
        if (band.columns > 1) continue;
        const height = (middle[point] as number) - top;
        points.push(band.left, height, band.left + BOX.width, height);
      }
      points.push(x[vertex] as number, (y[vertex] as number) + BOX.height / 2);
      edges.push({ from: parent, to: vertex, points: Float32Array.from(points) });
    }
  }
  return edges;
}
