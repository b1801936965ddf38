/** Draws grids and points on a canvas: with WebGL2 (`density.ts`) or without (`flat.ts`). */

import type { Look } from "./colour";
import type { Grid } from "./grid";

/** Single numbers beside each other. */
export interface Points {
  delays: Uint16Array;
  /** The value that colours each point: bits, or residue plus one. */
  values: Uint16Array;
  /** Pixels from the left edge to the middle of the first, and from one to the next. */
  left: number;
  step: number;
  low: number;
  high: number;
  /** Pixels across a point. */
  size: number;
}

export interface Painter {
  readonly kind: "webgl2" | "canvas";
  /** True where the machine has no graphics processor. */
  readonly software: boolean;
  /** Points drawn at a time at most. */
  readonly mostPoints: number;
  /** The grid must be as large as the canvas. */
  grid(grid: Grid, look: Look): void;
  points(points: readonly Points[], look: Look): void;
  clear(): void;
  dispose(): void;
}
