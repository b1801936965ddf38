/** Draws grids and points on a canvas, with WebGL2 (`density.ts`) or without (`flat.ts`). */

import type { ColorScale } from "./color";
import type { Grid } from "./grid";

/** Consecutive numbers drawn as points. */
export interface Points {
  delays: Uint16Array;
  /** Value that determines the color of each point: bits, or residue plus one. */
  values: Uint16Array;
  /** Distance in pixels from the left edge to the first point, and between points. */
  left: number;
  step: number;
  low: number;
  high: number;
  /** Diameter of a point in pixels. */
  size: number;
}

export interface Painter {
  readonly kind: "webgl2" | "canvas";
  /** True if the browser renders in software. */
  readonly isSoftware: boolean;
  /** Maximum number of points per draw call. */
  readonly maxPoints: number;
  /** Draw a grid that has the size of the canvas. */
  drawGrid(grid: Grid, look: ColorScale): void;
  drawPoints(points: readonly Points[], look: ColorScale): void;
  clear(): void;
  dispose(): void;
}
