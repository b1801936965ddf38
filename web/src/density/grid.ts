/** Counts on a grid of pixels. Pure. */

export interface Grid {
  width: number;
  height: number;
  /** Row after row, the lowest values first; 0: nothing is there. */
  cells: Float32Array;
}

export function grid(width: number, height: number): Grid {
  return { width, height, cells: new Float32Array(width * height) };
}
