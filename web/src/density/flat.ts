/** Draws the same pictures without WebGL2, on a 2D canvas. */

import { cellColor, cssColor, scalePosition, type ColorScale } from "./color";
import type { Grid } from "./grid";
import type { Painter, Points } from "./painter";

/** Number of entries in the color table, which avoids computing a color for each of a million pixels. */
const TABLE_SIZE = 255;

/** Return a function from a cell's value to its pixel (little-endian RGBA). */
function createPixelTable(look: ColorScale): (value: number) => number {
  const tableIndex = (value: number) =>
    look.mode === "class" ? value : Math.round(TABLE_SIZE * Math.min(1, Math.max(0, scalePosition(value, look))));
  const plain: ColorScale = look.mode === "class" ? look : { ...look, mode: "value", min: 0, max: TABLE_SIZE };
  const pixels = Int32Array.from({ length: TABLE_SIZE + 1 }, (_, each) => {
    const [red, green, blue] = cellColor(each, plain);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
  return (value) => pixels[tableIndex(value)] as number;
}

class FlatPainter implements Painter {
  readonly kind = "canvas";
  readonly isSoftware = true;
  readonly maxPoints = 5e4;

  constructor(private readonly context: CanvasRenderingContext2D) {}

  clear(): void {
    const { canvas } = this.context;
    this.context.clearRect(0, 0, canvas.width, canvas.height);
  }

  drawGrid({ width, height, cells }: Grid, look: ColorScale): void {
    const image = this.context.createImageData(width, height);
    const pixels = new Int32Array(image.data.buffer);
    const pixelOf = createPixelTable(look);
    for (let row = 0; row < height; row += 1) {
      const into = (height - 1 - row) * width;
      for (let column = 0; column < width; column += 1) {
        const value = cells[row * width + column] as number;
        if (value > 0) pixels[into + column] = pixelOf(value);
      }
    }
    this.context.putImageData(image, 0, 0);
  }

  drawPoints(all: readonly Points[], look: ColorScale): void {
    this.clear();
    const { context } = this;
    const { height } = context.canvas;
    for (const { delays, values, left, step, low, high, size } of all) {
      for (const [index, delay] of delays.entries()) {
        context.fillStyle = cssColor(cellColor(values[index] as number, look));
        context.beginPath();
        context.arc(
          left + index * step,
          height - ((delay + 0.5 - low) * height) / (high - low),
          size / 2,
          0,
          2 * Math.PI,
        );
        context.fill();
      }
    }
  }

  dispose(): void {
    this.clear();
  }
}

export function createFlatPainter(canvas: HTMLCanvasElement): Painter {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser cannot draw on a canvas");
  return new FlatPainter(context);
}
