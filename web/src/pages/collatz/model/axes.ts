/** Drawing over the picture: axes, rings around records, the expected mean, the pointer and the selection. */

import { across } from "./layers";
import { expected } from "./fit";
import { log2, power } from "./number";
import { distance, roundStep, ticks, under, type Range } from "./view";
import { formatCompact, formatInteger } from "../../../lib/format";
import { token } from "../../../lib/theme";
import { placeOf, type Scene } from "./scene";

/** Space for the axes in CSS pixels. */
export const EDGE = { left: 44, right: 8, top: 8, bottom: 34 };

export interface Ring {
  n: bigint;
  steps: number;
  /** Each kind of record has a different shape. */
  kind: "delay" | "path";
}

export interface Over {
  rings: readonly Ring[];
  pointed: { n: bigint; steps: number } | undefined;
  brush: Range | undefined;
}

type Context = CanvasRenderingContext2D;

function fontOf(): string {
  return `12px ${getComputedStyle(document.body).fontFamily}`;
}

/** Format n for an axis: in full, rounded, or as an offset from the base below the axis. */
export function tickText(n: bigint, base: bigint): string {
  if (n < 10n ** 13n) return formatInteger(n);
  if (base === 0n) return formatCompact(n);
  const off = n - base;
  return `${off < 0n ? "\u2212" : "+"}${formatInteger(off < 0n ? -off : off)}`;
}

/** Return a round number near the left edge as the base of long labels. */
function anchor(scene: Scene, marks: readonly bigint[]): bigint {
  const step = roundStep(scene.frame.view.span * 2);
  const first = marks[0] ?? scene.frame.view.base;
  return (first / step) * step;
}

function xAxis(context: Context, scene: Scene, width: number, height: number): void {
  const { view, log } = scene.frame;
  const marks = log ? logTicks(scene) : ticks(view, Math.max(2, width / 130));
  const base = anchor(scene, marks);
  const x = across(scene.frame, width);
  context.textBaseline = "top";
  let end = -Infinity;
  let far = false;
  for (const n of marks) {
    const at = EDGE.left + x(distance(view, n) + (log ? 0 : 0.5));
    if (at < EDGE.left || at > EDGE.left + width + 1) continue;
    context.fillStyle = token("line");
    context.fillRect(Math.round(at), EDGE.top, 1, height);
    const text = log ? powerText(n) : tickText(n, base);
    const wide = context.measureText(text).width;
    const left = Math.min(Math.max(0, at - wide / 2), EDGE.left + width + EDGE.right - wide);
    if (left < end + 10) continue;
    end = left + wide;
    far ||= text.startsWith("+") || text.startsWith("\u2212");
    context.fillStyle = token("ink-soft");
    context.textAlign = "left";
    context.fillText(text, left, EDGE.top + height + 3);
  }
  context.fillStyle = token("ink-soft");
  context.textAlign = "right";
  const title = far ? `n, from ${formatInteger(base)}` : log ? "n, log scale" : "n";
  context.fillText(title, EDGE.left + width, EDGE.top + height + 18);
}

function powerText(n: bigint): string {
  const bits = Math.round(log2(n));
  return 2n ** BigInt(bits) === n && n > 1024n ? power(2, bits) : formatInteger(n);
}

/** Return the powers of two in view. */
function logTicks({ frame: { view } }: Scene): bigint[] {
  const end = under(view, 1);
  const powers: bigint[] = [];
  for (let at = 1n; at <= end; at *= 2n) if (at >= view.base) powers.push(at);
  const every = Math.max(1, Math.ceil(powers.length / 12));
  return powers.filter((_, place) => place % every === 0);
}

function yAxis(context: Context, { frame: { low, high } }: Scene, width: number, height: number): void {
  const step = Number(roundStep((high - low) / Math.max(2, height / 60)));
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    const y = Math.round(EDGE.top + height * (1 - (value - low) / (high - low)));
    context.fillStyle = token("line");
    context.fillRect(EDGE.left, y, width, 1);
    context.fillStyle = token("ink-soft");
    context.fillText(formatInteger(value), EDGE.left - 6, Math.max(7, y));
  }
  context.save();
  context.translate(9, EDGE.top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText("steps to 1", 0, 0);
  context.restore();
}

/** Draw the grid and labels below the data. */
export function drawAxes(context: Context, scene: Scene, width: number, height: number): void {
  context.font = fontOf();
  xAxis(context, scene, width, height);
  yAxis(context, scene, width, height);
  context.strokeStyle = token("line-strong");
  context.lineWidth = 1;
  context.strokeRect(EDGE.left - 0.5, EDGE.top - 0.5, width + 1, height + 1);
}

/** Number of points on the line of expected means. */
const SAMPLES = 300;

function model(context: Context, scene: Scene, width: number, y: (steps: number) => number): void {
  context.beginPath();
  for (let place = 0; place <= SAMPLES; place += 1) {
    const n = under(scene.frame.view, place / SAMPLES);
    const at = EDGE.left + across(scene.frame, width)((scene.frame.view.span * place) / SAMPLES);
    context.lineTo(at, y(expected(n > 0n ? n : 1n)));
  }
  context.setLineDash([6, 4]);
  context.strokeStyle = token("ink");
  context.lineWidth = 1.5;
  context.stroke();
  context.setLineDash([]);
}

function rings(
  context: Context,
  scene: Scene,
  all: readonly Ring[],
  width: number,
  y: (steps: number) => number,
): void {
  context.lineWidth = 2;
  for (const { n, steps, kind } of all) {
    const x = EDGE.left + placeOf(scene.frame, width, n);
    if (x < EDGE.left || x > EDGE.left + width) continue;
    context.strokeStyle = token(kind === "delay" ? "bad" : "accent");
    context.beginPath();
    if (kind === "delay") context.arc(x, y(steps), 6, 0, 2 * Math.PI);
    else context.rect(x - 5, y(steps) - 5, 10, 10);
    context.stroke();
  }
}

/** Draw the layer above the data. */
export function drawOver(context: Context, scene: Scene, over: Over, width: number, height: number): void {
  const { low, high } = scene.frame;
  const y = (steps: number) => EDGE.top + height * (1 - (steps + 0.5 - low) / (high - low));
  context.save();
  context.beginPath();
  context.rect(EDGE.left, EDGE.top, width, height);
  context.clip();
  if (over.brush) brushed(context, scene, over.brush, width, height);
  if (scene.source !== "none") model(context, scene, width, y);
  rings(context, scene, over.rings, width, y);
  if (over.pointed)
    cross(context, EDGE.left + placeOf(scene.frame, width, over.pointed.n), y(over.pointed.steps), width, height);
  context.restore();
}

function brushed(context: Context, scene: Scene, { first, end }: Range, width: number, height: number): void {
  const x = across(scene.frame, width);
  const [left, right] = [first, end].map((n) => EDGE.left + x(distance(scene.frame.view, n))) as [number, number];
  context.fillStyle = token("accent");
  context.globalAlpha = 0.14;
  context.fillRect(left, EDGE.top, Math.max(1, right - left), height);
  context.globalAlpha = 1;
  for (const at of [left, right]) context.fillRect(Math.round(at), EDGE.top, 1, height);
}

function cross(context: Context, x: number, y: number, width: number, height: number): void {
  context.strokeStyle = token("ink");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, EDGE.top);
  context.lineTo(Math.round(x) + 0.5, EDGE.top + height);
  context.moveTo(EDGE.left, Math.round(y) + 0.5);
  context.lineTo(EDGE.left + width, Math.round(y) + 0.5);
  context.globalAlpha = 0.5;
  context.stroke();
  context.globalAlpha = 1;
  context.beginPath();
  context.arc(x, y, 4, 0, 2 * Math.PI);
  context.stroke();
}
