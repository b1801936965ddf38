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
const SWEEPS = 8;
const LEAST_SWEEPS = 2;
const LOOKED_AT = 40_000;
/** Number of rounds without improvement after which the search stops. */
const PATIENCE = 2;
/** Maximum number of edges for counting crossings. In larger graphs the last order is kept. */
const COUNTED = 20_000;

/** Count edge crossings between two layers, which are inversions, with a Fenwick tree. */
function crossed(row: readonly number[], down: Layered["down"], place: Int32Array, width: number): number {
  const sums = new Int32Array(width + 1);
  let [found, seen] = [0, 0];
  for (const vertex of row) {
    const ends = (down[vertex] as readonly number[]).map((each) => place[each] as number).sort((a, b) => a - b);
    for (const end of ends) {
      let before = 0;
      for (let at = end + 1; at > 0; at -= at & -at) before += sums[at] as number;
      found += seen - before;
    }
    for (const end of ends) for (let at = end + 1; at <= width; at += at & -at) sums[at] = (sums[at] as number) + 1;
    seen += ends.length;
  }
  return found;
}

/** Count all edge crossings. */
export function crossings({ rows, down }: Layered): number {
  const place = placesOf(rows);
  return rows.slice(0, -1).reduce((sum, row, at) => sum + crossed(row, down, place, rows[at + 1]?.length ?? 0), 0);
}

function placesOf(rows: readonly (readonly number[])[]): Int32Array {
  const place = new Int32Array(rows.reduce((sum, row) => sum + row.length, 0));
  for (const row of rows) for (const [at, vertex] of row.entries()) place[vertex] = at;
  return place;
}

/** Sort a layer by the mean position of each vertex's neighbors. Vertices without neighbors keep their positions. */
function sorted(row: number[], near: Layered["up"], place: Int32Array): void {
  const wish = new Map<number, number>();
  for (const [at, vertex] of row.entries()) {
    const own = near[vertex] as readonly number[];
    const sum = own.reduce((total, each) => total + (place[each] as number), 0);
    wish.set(vertex, own.length ? sum / own.length : at);
  }
  row.sort((left, right) => (wish.get(left) as number) - (wish.get(right) as number));
  for (const [at, vertex] of row.entries()) place[vertex] = at;
}

/** Reorder the layers with the barycenter method in both directions, and keep the order with the fewest crossings. */
export function ordered(layered: Layered): void {
  const { rows, up, down } = layered;
  const place = placesOf(rows);
  const edges = down.reduce((sum, each) => sum + each.length, 0);
  const count = () => (edges <= COUNTED ? crossings(layered) : 0);
  const copy = () => rows.map((row) => [...row]);
  let [best, kept, worse] = [count(), copy(), 0];
  if (edges > COUNTED) best = 1;
  const sweeps = Math.max(LEAST_SWEEPS, Math.min(SWEEPS, Math.floor(LOOKED_AT / (edges + 1))));
  for (let sweep = 0; sweep < sweeps && best > 0 && worse < PATIENCE; sweep += 1) {
    for (let at = 1; at < rows.length; at += 1) sorted(rows[at] as number[], up, place);
    for (let at = rows.length - 2; at >= 0; at -= 1) sorted(rows[at] as number[], down, place);
    const found = edges <= COUNTED ? count() : best;
    worse = found < best ? 0 : worse + 1;
    if (found <= best) [best, kept] = [found, copy()];
  }
  for (const [at, row] of kept.entries()) rows[at] = row;
}
