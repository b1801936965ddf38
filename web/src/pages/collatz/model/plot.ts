/** Helpers for 2D plots: positions, round ticks and labels. */

import { roundStep } from "./view";
import { token } from "../../../lib/theme";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export type Context = CanvasRenderingContext2D;

export function setFont(context: Context): void {
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
}

/** Return about `about` round values between two values. */
export function roundValues(low: number, high: number, about: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const scale = span < 20 ? 1000 : 1;
  const step = Number(roundStep((span * scale) / Math.max(1, about))) / scale;
  const values: number[] = [];
  for (let index = Math.ceil(low / step); index * step <= high + 1e-9; index += 1) values.push(index * step);
  return values;
}

/** Draw the grid lines and labels of a y axis. */
export function drawYTicks(
  context: Context,
  box: Box,
  low: number,
  high: number,
  text: (value: number) => string,
): void {
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of roundValues(low, high, box.height / 50)) {
    const y = Math.round(box.top + box.height * (1 - (value - low) / (high - low)));
    context.fillStyle = token("line");
    context.fillRect(box.left, y, box.width, 1);
    context.fillStyle = token("ink-soft");
    context.fillText(text(value), box.left - 6, Math.max(7, y));
  }
}

export function drawXTicks(
  context: Context,
  box: Box,
  low: number,
  high: number,
  text: (value: number) => string,
  title: string,
): void {
  context.textAlign = "center";
  context.textBaseline = "top";
  context.fillStyle = token("ink-soft");
  const titleWidth = context.measureText(title).width + 16;
  for (const value of roundValues(low, high, box.width / 90)) {
    const x = box.left + (box.width * (value - low)) / (high - low);
    context.fillRect(Math.round(x), box.top + box.height, 1, 4);
    if (x < box.left + box.width - titleWidth) context.fillText(text(value), x, box.top + box.height + 6);
  }
  context.textAlign = "right";
  context.fillText(title, box.left + box.width, box.top + box.height + 6);
}
