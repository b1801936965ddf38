/** Counts on a grid of pixels. Pure functions. */

export interface Grid {
  width: number;
  height: number;
  /** Cells row by row, lowest values first; 0 for an empty cell. */
  cells: Float32Array;
}

export function createGrid(width: number, height: number): Grid {
  return { width, height, cells: new Float32Array(width * height) };
}
