/** Orders vertices within their layers to reduce edge crossings. Pure functions. */

/** Vertices in layers, in which each edge connects adjacent layers. */
export interface Layered {
  /** Vertices of each layer, reordered in place. */
  rows: number[][];
  /** Neighbors of each vertex in the previous layer and in the next layer. */
  up: readonly (readonly number[])[];
  down: readonly (readonly number[])[];
}

/** Maximum number of rounds (one sweep right, one left); large graphs use fewer. */
const MAX_SWEEPS = 8;
const MIN_SWEEPS = 2;
const MAX_EDGE_VISITS = 40_000;
/** Number of rounds without improvement after which the search stops. */
const MAX_STALLED_SWEEPS = 2;
/** Maximum number of edges for counting crossings. In larger graphs the last order is kept. */
const MAX_COUNTED_EDGES = 20_000;

/** Count edge crossings between two layers, which are inversions, with a Fenwick tree. */
function countLayerCrossings(
  row: readonly number[],
  down: Layered["down"],
  positions: Int32Array,
  width: number,
): number {
  const sums = new Int32Array(width + 1);
  let [crossings, previousEnds] = [0, 0];
  for (const vertex of row) {
    const ends = (down[vertex] as readonly number[]).map((each) => positions[each] as number).sort((a, b) => a - b);
    for (const end of ends) {
      let before = 0;
      for (let at = end + 1; at > 0; at -= at & -at) before += sums[at] as number;
      crossings += previousEnds - before;
    }
    for (const end of ends) for (let at = end + 1; at <= width; at += at & -at) sums[at] = (sums[at] as number) + 1;
    previousEnds += ends.length;
  }
  return crossings;
}

/** Count all edge crossings. */
export function countCrossings({ rows, down }: Layered): number {
  const positions = computePositions(rows);
  return rows
    .slice(0, -1)
    .reduce((sum, row, at) => sum + countLayerCrossings(row, down, positions, rows[at + 1]?.length ?? 0), 0);
}

function computePositions(rows: readonly (readonly number[])[]): Int32Array {
  const positions = new Int32Array(rows.reduce((sum, row) => sum + row.length, 0));
  for (const row of rows) for (const [at, vertex] of row.entries()) positions[vertex] = at;
  return positions;
}

/** Sort a layer by the mean position of each vertex's neighbors. Vertices without neighbors keep their positions. */
function sortLayer(row: number[], neighbors: Layered["up"], positions: Int32Array): void {
  const wish = new Map<number, number>();
  for (const [at, vertex] of row.entries()) {
    const own = neighbors[vertex] as readonly number[];
    const sum = own.reduce((total, each) => total + (positions[each] as number), 0);
    wish.set(vertex, own.length ? sum / own.length : at);
  }
  row.sort((left, right) => (wish.get(left) as number) - (wish.get(right) as number));
  for (const [at, vertex] of row.entries()) positions[vertex] = at;
}

/** Reorder the layers with the barycenter method in both directions, and keep the order with the fewest crossings. */
export function orderLayers(layered: Layered): void {
  const { rows, up, down } = layered;
  const positions = computePositions(rows);
  const edges = down.reduce((sum, each) => sum + each.length, 0);
  const count = () => (edges <= MAX_COUNTED_EDGES ? countCrossings(layered) : 0);
  const copy = () => rows.map((row) => [...row]);
  let [fewest, bestRows, stalledSweeps] = [count(), copy(), 0];
  if (edges > MAX_COUNTED_EDGES) fewest = 1;
  const sweeps = Math.max(MIN_SWEEPS, Math.min(MAX_SWEEPS, Math.floor(MAX_EDGE_VISITS / (edges + 1))));
  for (let sweep = 0; sweep < sweeps && fewest > 0 && stalledSweeps < MAX_STALLED_SWEEPS; sweep += 1) {
    for (let at = 1; at < rows.length; at += 1) sortLayer(rows[at] as number[], up, positions);
    for (let at = rows.length - 2; at >= 0; at -= 1) sortLayer(rows[at] as number[], down, positions);
    const crossings = edges <= MAX_COUNTED_EDGES ? count() : fewest;
    stalledSweeps = crossings < fewest ? 0 : stalledSweeps + 1;
    if (crossings <= fewest) [fewest, bestRows] = [crossings, copy()];
  }
  for (const [at, row] of bestRows.entries()) rows[at] = row;
}
