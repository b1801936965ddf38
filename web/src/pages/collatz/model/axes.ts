/** Drawing over the picture: axes, rings around records, the expected mean, the pointer and the selection. */

import { toPixels } from "./layers";
import { expectedDelay } from "./fit";
import { log2, formatPower } from "./number";
import { distance, roundStep, roundTicks, numberAt, type Range } from "./view";
import { formatCompact, formatInteger } from "../../../lib/format";
import { token } from "../../../lib/theme";
import { numberPosition, type Scene } from "./scene";

/** Space for the axes in CSS pixels. */
export const MARGIN = { left: 44, right: 8, top: 8, bottom: 34 };

export interface Ring {
  n: bigint;
  steps: number;
  /** Each kind of record has a different shape. */
  kind: "delay" | "path";
}

export interface Overlay {
  rings: readonly Ring[];
  pointed: { n: bigint; steps: number } | undefined;
  selectedRange: Range | undefined;
}

type Context = CanvasRenderingContext2D;

function pageFont(): string {
  return `12px ${getComputedStyle(document.body).fontFamily}`;
}

/** Format n for an axis: in full, rounded, or as an offset from the base below the axis. */
export function formatTick(n: bigint, base: bigint): string {
  if (n < 10n ** 13n) return formatInteger(n);
  if (base === 0n) return formatCompact(n);
  const off = n - base;
  return `${off < 0n ? "\u2212" : "+"}${formatInteger(off < 0n ? -off : off)}`;
}

/** Return a round number near the left edge as the base of long labels. */
function labelBase(scene: Scene, marks: readonly bigint[]): bigint {
  const step = roundStep(scene.frame.view.span * 2);
  const first = marks[0] ?? scene.frame.view.base;
  return (first / step) * step;
}

function drawXAxis(context: Context, scene: Scene, width: number, height: number): void {
  const { view, log } = scene.frame;
  const marks = log ? logTicks(scene) : roundTicks(view, Math.max(2, width / 130));
  const base = labelBase(scene, marks);
  const x = toPixels(scene.frame, width);
  context.textBaseline = "top";
  let end = -Infinity;
  let far = false;
  for (const n of marks) {
    const at = MARGIN.left + x(distance(view, n) + (log ? 0 : 0.5));
    if (at < MARGIN.left || at > MARGIN.left + width + 1) continue;
    context.fillStyle = token("line");
    context.fillRect(Math.round(at), MARGIN.top, 1, height);
    const text = log ? formatPowerOfTwo(n) : formatTick(n, base);
    const wide = context.measureText(text).width;
    const left = Math.min(Math.max(0, at - wide / 2), MARGIN.left + width + MARGIN.right - wide);
    if (left < end + 10) continue;
    end = left + wide;
    far ||= text.startsWith("+") || text.startsWith("\u2212");
    context.fillStyle = token("ink-soft");
    context.textAlign = "left";
    context.fillText(text, left, MARGIN.top + height + 3);
  }
  context.fillStyle = token("ink-soft");
  context.textAlign = "right";
  const title = far ? `n, from ${formatInteger(base)}` : log ? "n, log scale" : "n";
  context.fillText(title, MARGIN.left + width, MARGIN.top + height + 18);
}

function formatPowerOfTwo(n: bigint): string {
  const bits = Math.round(log2(n));
  return 2n ** BigInt(bits) === n && n > 1024n ? formatPower(2, bits) : formatInteger(n);
}

/** Return the powers of two in view. */
function logTicks({ frame: { view } }: Scene): bigint[] {
  const end = numberAt(view, 1);
  const powers: bigint[] = [];
  for (let at = 1n; at <= end; at *= 2n) if (at >= view.base) powers.push(at);
  const every = Math.max(1, Math.ceil(powers.length / 12));
  return powers.filter((_, index) => index % every === 0);
}

function drawYAxis(context: Context, { frame: { low, high } }: Scene, width: number, height: number): void {
  const step = Number(roundStep((high - low) / Math.max(2, height / 60)));
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    const y = Math.round(MARGIN.top + height * (1 - (value - low) / (high - low)));
    context.fillStyle = token("line");
    context.fillRect(MARGIN.left, y, width, 1);
    context.fillStyle = token("ink-soft");
    context.fillText(formatInteger(value), MARGIN.left - 6, Math.max(7, y));
  }
  context.save();
  context.translate(9, MARGIN.top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText("steps to 1", 0, 0);
  context.restore();
}

/** Draw the grid and labels below the data. */
export function drawAxes(context: Context, scene: Scene, width: number, height: number): void {
  context.font = pageFont();
  drawXAxis(context, scene, width, height);
  drawYAxis(context, scene, width, height);
  context.strokeStyle = token("line-strong");
  context.lineWidth = 1;
  context.strokeRect(MARGIN.left - 0.5, MARGIN.top - 0.5, width + 1, height + 1);
}

/** Number of points on the line of expected means. */
const SAMPLES = 300;

function drawExpectedMean(context: Context, scene: Scene, width: number, y: (steps: number) => number): void {
  context.beginPath();
  for (let index = 0; index <= SAMPLES; index += 1) {
    const n = numberAt(scene.frame.view, index / SAMPLES);
    const at = MARGIN.left + toPixels(scene.frame, width)((scene.frame.view.span * index) / SAMPLES);
    context.lineTo(at, y(expectedDelay(n > 0n ? n : 1n)));
  }
  context.setLineDash([6, 4]);
  context.strokeStyle = token("ink");
  context.lineWidth = 1.5;
  context.stroke();
  context.setLineDash([]);
}

function drawRings(
  context: Context,
  scene: Scene,
  all: readonly Ring[],
  width: number,
  y: (steps: number) => number,
): void {
  context.lineWidth = 2;
  for (const { n, steps, kind } of all) {
    const x = MARGIN.left + numberPosition(scene.frame, width, n);
    if (x < MARGIN.left || x > MARGIN.left + width) continue;
    context.strokeStyle = token(kind === "delay" ? "bad" : "accent");
    context.beginPath();
    if (kind === "delay") context.arc(x, y(steps), 6, 0, 2 * Math.PI);
    else context.rect(x - 5, y(steps) - 5, 10, 10);
    context.stroke();
  }
}

/** Draw the layer above the data. */
export function drawOverlay(context: Context, scene: Scene, over: Overlay, width: number, height: number): void {
  const { low, high } = scene.frame;
  const y = (steps: number) => MARGIN.top + height * (1 - (steps + 0.5 - low) / (high - low));
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, width, height);
  context.clip();
  if (over.selectedRange) drawSelection(context, scene, over.selectedRange, width, height);
  if (scene.source !== "none") drawExpectedMean(context, scene, width, y);
  drawRings(context, scene, over.rings, width, y);
  if (over.pointed)
    drawCross(
      context,
      MARGIN.left + numberPosition(scene.frame, width, over.pointed.n),
      y(over.pointed.steps),
      width,
      height,
    );
  context.restore();
}

function drawSelection(context: Context, scene: Scene, { first, end }: Range, width: number, height: number): void {
  const x = toPixels(scene.frame, width);
  const [left, right] = [first, end].map((n) => MARGIN.left + x(distance(scene.frame.view, n))) as [number, number];
  context.fillStyle = token("accent");
  context.globalAlpha = 0.14;
  context.fillRect(left, MARGIN.top, Math.max(1, right - left), height);
  context.globalAlpha = 1;
  for (const at of [left, right]) context.fillRect(Math.round(at), MARGIN.top, 1, height);
}

function drawCross(context: Context, x: number, y: number, width: number, height: number): void {
  context.strokeStyle = token("ink");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, MARGIN.top);
  context.lineTo(Math.round(x) + 0.5, MARGIN.top + height);
  context.moveTo(MARGIN.left, Math.round(y) + 0.5);
  context.lineTo(MARGIN.left + width, Math.round(y) + 0.5);
  context.globalAlpha = 0.5;
  context.stroke();
  context.globalAlpha = 1;
  context.beginPath();
  context.arc(x, y, 4, 0, 2 * Math.PI);
  context.stroke();
}
