/** Grid of cells, each for one unit or several units. Pure functions. */

import { UNIT_STATES } from "./units";

/** Maximum number of cells; more units share cells. */
const MAX_CELLS = 10_000;
/** Cell sizes with their gap in pixels; the largest that fits is used. */
const CELL_SIZES = [20, 16, 14, 12, 10, 8, 7, 6, 5, 4] as const;
/** Maximum height of a grid in pixels if smaller cells are possible. */
const MAX_HEIGHT = 360;

/** States by urgency, for units that share a cell. */
const URGENCY = ["dead", "retrying", "running", "waiting", "done"] as const;
const URGENCY_RANKS = UNIT_STATES.map((state) => URGENCY.indexOf(state));

export interface UnitGridLayout {
  total: number;
  /** Number of units per cell. */
  unitsPerCell: number;
  cells: number;
  columns: number;
  rows: number;
  /** Distance between cells in pixels. */
  cellSize: number;
  height: number;
}

/** Return the number of units per cell, a power of ten. */
export function unitsPerCell(total: number): number {
  return 10 ** Math.max(0, Math.ceil(Math.log10(total / MAX_CELLS) - 1e-9));
}

export function layOutGrid(total: number, width: number): UnitGridLayout {
  const share = unitsPerCell(total);
  const cells = Math.ceil(total / share);
  const columnsAt = (side: number) => Math.max(1, Math.floor(width / side));
  const fits = (side: number) => Math.ceil(cells / columnsAt(side)) * side <= MAX_HEIGHT;
  const side = CELL_SIZES.find(fits) ?? (CELL_SIZES.at(-1) as number);
  const columns = Math.min(columnsAt(side), Math.max(1, cells));
  const rows = Math.ceil(cells / columns);
  return { total, unitsPerCell: share, cells, columns, rows, cellSize: side, height: rows * side };
}

export interface StateShare {
  code: number;
  /** Share of the cell's units from 0 to 1. */
  share: number;
}

/** Return the shares of the states of a cell's units, most urgent first. */
export function cellShares(list: Uint8Array, cell: number, { unitsPerCell: units }: UnitGridLayout): StateShare[] {
  const codes = list.subarray(cell * units, (cell + 1) * units);
  const counts = UNIT_STATES.map(() => 0);
  for (const code of codes) counts[code] = (counts[code] as number) + 1;
  return counts
    .map((count, code) => ({ code, share: count / codes.length }))
    .filter(({ share }) => share > 0)
    .sort((left, right) => (URGENCY_RANKS[left.code] as number) - (URGENCY_RANKS[right.code] as number));
}

/** Return the width of each state in a cell. Every state gets at least a pixel, except the last ones in a full cell. */
export function divideCell(shares: readonly StateShare[], size: number): { code: number; width: number }[] {
  let left = size;
  return shares.map(({ code, share }, index) => {
    const rest = shares.length - 1 - index;
    const width = rest ? Math.min(left, Math.max(1, Math.min(Math.round(share * size), left - rest))) : left;
    left -= width;
    return { code, width };
  });
}

/** Return the cell at a point; undefined outside the grid. */
export function cellAt(x: number, y: number, { cellSize: side, columns, cells }: UnitGridLayout): number | undefined {
  const [column, row] = [Math.floor(x / side), Math.floor(y / side)];
  const cell = row * columns + column;
  return column < 0 || row < 0 || column >= columns || cell >= cells ? undefined : cell;
}

/** Return the left and top coordinates of a cell. */
export function cellPosition(cell: number, { cellSize: side, columns }: UnitGridLayout): [number, number] {
  return [(cell % columns) * side, Math.floor(cell / columns) * side];
}

/** Return the cell to which a key moves; undefined for other keys. */
export function cellAfterKey(cell: number, key: string, { columns, cells }: UnitGridLayout): number | undefined {
  const steps: Record<string, number> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -columns,
    ArrowDown: columns,
    PageUp: -10 * columns,
    PageDown: 10 * columns,
    Home: -cells,
    End: cells,
  };
  const step = steps[key];
  return step === undefined ? undefined : Math.max(0, Math.min(cells - 1, cell + step));
}

/** Return the next unit in a state, wrapping around; undefined if there is none. */
export function findNextUnit(list: Uint8Array, code: number, after: number): number | undefined {
  const later = list.indexOf(code, after + 1);
  const index = later < 0 ? list.indexOf(code) : later;
  return index < 0 ? undefined : index;
}
