/** Draws a graph on a canvas: edges, and boxes with a symbol and a color for their state, and text if it fits. */

import { BOX, type Layout } from "./layout";
import { mapOf, type Size, type View } from "./view";

/** Symbols that distinguish states without color. */
export type Sign = "hollow" | "dashed" | "half" | "solid" | "cross" | "bar" | "pause" | "triangle" | "chevrons";

export interface Look {
  sign: Sign;
  color: string;
}

export interface BoxLook {
  title: string;
  /** Text below the title, if it fits. */
  note: string;
  look: Look;
  /** Fractions of the box's members by color, drawn as a bar at the bottom; their sum is at most 1. */
  shares: readonly (readonly [color: string, share: number])[];
  /** True if the box represents several vertices. */
  folded: boolean;
  /** True if the box is drawn faintly, because it does not match the current search. */
  faint: boolean;
}

export interface Paint {
  ink: string;
  soft: string;
  line: string;
  raised: string;
  lit: string;
  accent: string;
  sans: string;
  mono: string;
}

export interface Drawing {
  layout: Layout;
  boxes: readonly BoxLook[];
  paint: Paint;
  /** Boxes of the highlighted path. */
  lit: ReadonlySet<number>;
  litEdge: (from: number, to: number) => boolean;
  /** Return True if an edge only requires its source to finish, with any outcome. */
  loose: (from: number, to: number) => boolean;
  /** True while the view is moving; edges that do not fit into a frame are then omitted. */
  moving: boolean;
  chosen: number | undefined;
  cursor: number | undefined;
}

/** Minimum scales for drawing text, symbols and curves. */
const WORDS_FROM = 0.6;
const SIGNS_FROM = 0.2;
const CURVES_FROM = 0.08;
/** Number of edges per stroke; longer paths are slower than several short ones. */
const BATCH = 400;
/**
 * Maximum number of edges drawn while moving and at rest; of larger graphs only every second, third ... edge is drawn.
 */
const MOST_MOVING = 4000;
export const MOST_EDGES = 20_000;
/** Maximum number of boxes in the overview map; of larger graphs only every second, third ... box is drawn. */
const MOST_MAPPED = 3000;
const FAINT = 0.22;
/** Width of a title's letter in pixels. */
const LETTER = 7.3;
const NOTE_LETTER = 5.6;

/** Shorten a text in the middle, because sibling names differ at their ends. */
export function shortened(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const tail = Math.floor((letters - 1) * 0.6);
  return `${text.slice(0, Math.max(0, letters - 1 - tail))}…${tail > 0 ? text.slice(-tail) : ""}`;
}

export function drawGraph(context: CanvasRenderingContext2D, drawing: Drawing, view: View, window: Size): void {
  context.save();
  context.scale(view.scale, view.scale);
  context.translate(-view.x, -view.y);
  const seen = sightOf(view, window);
  drawEdges(context, drawing, view, seen);
  for (let box = 0; box < drawing.boxes.length; box += 1)
    if (inSight(drawing.layout, box, seen)) drawBox(context, drawing, box, view);
  context.restore();
  drawMap(context, drawing, view, window);
}

/** Draw an overview map with a frame around the visible part. */
function drawMap(context: CanvasRenderingContext2D, { layout, boxes, paint }: Drawing, view: View, window: Size): void {
  const map = mapOf(layout, view, window);
  if (!map) return;
  context.save();
  context.beginPath();
  context.rect(map.left, map.top, map.width, map.height);
  context.fillStyle = paint.raised;
  context.fill();
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  context.stroke();
  context.clip();
  const [wide, high] = [Math.max(1.5, BOX.width * map.scale), Math.max(1.5, BOX.height * map.scale)];
  const step = Math.ceil(boxes.length / MOST_MAPPED);
  for (let box = 0; box < boxes.length; box += step) {
    const shown = boxes[box] as BoxLook;
    context.fillStyle = shown.look.color;
    context.globalAlpha = shown.faint ? FAINT : 1;
    context.fillRect(
      map.left + (layout.x[box] as number) * map.scale,
      map.top + (layout.y[box] as number) * map.scale,
      wide,
      high,
    );
  }
  context.globalAlpha = 1;
  context.strokeStyle = paint.ink;
  context.lineWidth = 1.5;
  const at = (start: number, left: number) => left + start * map.scale;
  const long = (room: number) => (room / view.scale) * map.scale;
  context.strokeRect(at(view.x, map.left), at(view.y, map.top), long(window.width), long(window.height));
  context.restore();
}

interface Sight {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

function sightOf({ x, y, scale }: View, { width, height }: Size): Sight {
  return { left: x, right: x + width / scale, top: y, bottom: y + height / scale };
}

function inSight({ x, y }: Layout, box: number, { left, right, top, bottom }: Sight): boolean {
  const [atX, atY] = [x[box] as number, y[box] as number];
  return atX + BOX.width >= left && atX <= right && atY + BOX.height >= top && atY <= bottom;
}

// -- edges ------------------------------------------------------------------------------------------------------------

function passes(points: Float32Array, { left, right, top, bottom }: Sight): boolean {
  if ((points[0] as number) > right || (points.at(-2) as number) < left) return false;
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let at = 1; at < points.length; at += 2) {
    const y = points[at] as number;
    if (y < least) least = y;
    if (y > most) most = y;
  }
  return most >= top && least <= bottom;
}

function trace(context: CanvasRenderingContext2D, points: Float32Array, curved: boolean): void {
  context.moveTo(points[0] as number, points[1] as number);
  for (let at = 2; at < points.length; at += 2) {
    const [x, y] = [points[at] as number, points[at + 1] as number];
    const [lastX, lastY] = [points[at - 2] as number, points[at - 1] as number];
    if (!curved || y === lastY) context.lineTo(x, y);
    else {
      const middle = (lastX + x) / 2;
      context.bezierCurveTo(middle, lastY, middle, y, x, y);
    }
  }
}

/** Return n if only every n-th edge is drawn. */
export function stepOf(edges: number): number {
  return Math.ceil(edges / MOST_EDGES);
}

function drawEdges(context: CanvasRenderingContext2D, drawing: Drawing, { scale }: View, seen: Sight): void {
  const { layout, lit, litEdge, loose, paint } = drawing;
  const [marked, dashed]: [Float32Array[], Float32Array[]] = [[], []];
  const curved = scale >= CURVES_FROM;
  context.strokeStyle = paint.line;
  context.lineWidth = Math.max(1, 0.75 / scale);
  context.globalAlpha = lit.size ? FAINT + 0.15 : 0.75;
  const step = drawing.moving && layout.edges.length > MOST_MOVING ? 0 : stepOf(layout.edges.length);
  let count = 0;
  context.beginPath();
  for (const [place, { from, to, points }] of layout.edges.entries()) {
    if (!passes(points, seen)) continue;
    if (lit.size && litEdge(from, to)) marked.push(points);
    else if (!step || place % step) continue;
    else if (loose(from, to)) dashed.push(points);
    else {
      trace(context, points, curved);
      count += 1;
      if (count % BATCH === 0) {
        context.stroke();
        context.beginPath();
      }
    }
  }
  context.stroke();
  if (dashed.length) {
    context.setLineDash([5, 4]);
    context.beginPath();
    for (const points of dashed) trace(context, points, curved);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
  if (!marked.length) return;
  context.strokeStyle = paint.lit;
  context.lineWidth = Math.max(2.5, 2 / scale);
  context.beginPath();
  for (const points of marked) trace(context, points, curved);
  context.stroke();
}

// -- boxes ------------------------------------------------------------------------------------------------------------

function drawBox(context: CanvasRenderingContext2D, drawing: Drawing, box: number, { scale }: View): void {
  const { layout, paint, lit } = drawing;
  const shown = drawing.boxes[box] as BoxLook;
  const [x, y] = [layout.x[box] as number, layout.y[box] as number];
  context.globalAlpha = shown.faint ? FAINT : 1;
  if (scale < SIGNS_FROM) {
    context.fillStyle = shown.look.color;
    // At least two pixels on the screen at any scale.
    context.fillRect(x, y, Math.max(BOX.width, 2 / scale), Math.max(BOX.height, 2 / scale));
    if (box === drawing.chosen || box === drawing.cursor) frame(context, drawing, box, x, y, scale);
    context.globalAlpha = 1;
    return;
  }
  if (shown.folded) sheet(context, paint, x + 4, y + 4);
  sheet(context, paint, x, y);
  context.fillStyle = shown.look.color;
  context.fillRect(x, y, scale < WORDS_FROM ? BOX.height : 5, BOX.height);
  if (lit.has(box)) {
    context.strokeStyle = paint.lit;
    context.lineWidth = 2.5;
    context.strokeRect(x, y, BOX.width, BOX.height);
  }
  if (scale < WORDS_FROM) small(context, shown, paint, x, y);
  else words(context, shown, paint, x, y);
  foot(context, shown, x, y);
  frame(context, drawing, box, x, y, scale);
  context.globalAlpha = 1;
}

function sheet(context: CanvasRenderingContext2D, paint: Paint, x: number, y: number): void {
  context.fillStyle = paint.raised;
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  context.fillRect(x, y, BOX.width, BOX.height);
  context.strokeRect(x + 0.5, y + 0.5, BOX.width - 1, BOX.height - 1);
}

/** The selected box has a thick frame; the box with the keyboard focus has a thin frame around it. */
function frame(
  context: CanvasRenderingContext2D,
  drawing: Drawing,
  box: number,
  x: number,
  y: number,
  scale: number,
): void {
  context.globalAlpha = 1;
  const around = (color: string, width: number, outside: number) => {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(x - outside, y - outside, BOX.width + 2 * outside, BOX.height + 2 * outside);
  };
  const unit = Math.max(1, 1 / scale);
  if (box === drawing.chosen) around(drawing.paint.ink, 2 * unit, 0);
  if (box === drawing.cursor) around(drawing.paint.accent, 2 * unit, 3 * unit);
}

function small(context: CanvasRenderingContext2D, { look }: BoxLook, paint: Paint, x: number, y: number): void {
  context.strokeStyle = context.fillStyle = paint.raised;
  drawSign(context, look.sign, x + BOX.height / 2, y + BOX.height / 2, 10);
}

function words(
  context: CanvasRenderingContext2D,
  { title, note, look }: BoxLook,
  paint: Paint,
  x: number,
  y: number,
): void {
  context.strokeStyle = context.fillStyle = look.color;
  drawSign(context, look.sign, x + 18, y + 11, 5.5);
  context.textBaseline = "alphabetic";
  context.fillStyle = paint.ink;
  context.font = `12px ${paint.mono}`;
  context.fillText(shortened(title, Math.floor((BOX.width - 34) / LETTER)), x + 30, y + 15);
  context.fillStyle = paint.soft;
  context.font = `10px ${paint.sans}`;
  const room = Math.floor((BOX.width - 20) / NOTE_LETTER);
  context.fillText(note.length > room ? `${note.slice(0, room - 1)}…` : note, x + 12, y + 28);
}

function foot(context: CanvasRenderingContext2D, { shares }: BoxLook, x: number, y: number): void {
  let left = x;
  for (const [color, share] of shares) {
    context.fillStyle = color;
    context.fillRect(left, y + BOX.height - 4, BOX.width * share, 4);
    left += BOX.width * share;
  }
}

/** Draw a symbol around a point with the current colors. */
export function drawSign(context: CanvasRenderingContext2D, sign: Sign, x: number, y: number, r: number): void {
  context.lineWidth = r / 3.2;
  const ring = (from = 0, to = 2 * Math.PI) => {
    context.beginPath();
    context.arc(x, y, r * 0.85, from, to);
  };
  const lines = (...points: [number, number, number, number][]) => {
    context.beginPath();
    for (const [x0, y0, x1, y1] of points) {
      context.moveTo(x + x0 * r, y + y0 * r);
      context.lineTo(x + x1 * r, y + y1 * r);
    }
    context.stroke();
  };
  switch (sign) {
    case "solid":
      ring();
      context.fill();
      break;
    case "half":
      ring();
      context.stroke();
      ring(-Math.PI / 2, Math.PI / 2);
      context.fill();
      break;
    case "hollow":
      ring();
      context.stroke();
      break;
    case "dashed":
      context.setLineDash([r * 0.45, r * 0.45]);
      ring();
      context.stroke();
      context.setLineDash([]);
      break;
    case "cross":
      lines([-0.8, -0.8, 0.8, 0.8], [0.8, -0.8, -0.8, 0.8]);
      break;
    case "bar":
      lines([-0.9, 0, 0.9, 0]);
      break;
    case "pause":
      lines([-0.4, -0.8, -0.4, 0.8], [0.4, -0.8, 0.4, 0.8]);
      break;
    case "triangle":
      lines([0, -0.85, 0.95, 0.8], [0.95, 0.8, -0.95, 0.8], [-0.95, 0.8, 0, -0.85]);
      break;
    case "chevrons":
      lines([-0.8, -0.7, -0.1, 0], [-0.1, 0, -0.8, 0.7], [0.1, -0.7, 0.8, 0], [0.8, 0, 0.1, 0.7]);
      break;
  }
}
