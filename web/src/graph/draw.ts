/** Draws a graph on a canvas: edges, and boxes with a symbol and a color for their state, and text if it fits. */

import { BOX, type Layout } from "./layout";
import { mapRect, type Size, type View } from "./view";

/** Symbols that distinguish states without color. */
export type StateSymbol = "hollow" | "dashed" | "half" | "solid" | "cross" | "bar" | "pause" | "triangle" | "chevrons";

export interface StateStyle {
  symbol: StateSymbol;
  color: string;
}

export interface BoxContent {
  title: string;
  /** Text below the title, if it fits. */
  note: string;
  style: StateStyle;
  /** Fractions of the box's members by color, drawn as a bar at the bottom; their sum is at most 1. */
  shares: readonly (readonly [color: string, share: number])[];
  /** True if the box represents several vertices. */
  isGroup: boolean;
  /** True if the box is drawn faintly, because it does not match the current search. */
  isFaint: boolean;
}

export interface DrawingColors {
  ink: string;
  secondary: string;
  line: string;
  surface: string;
  highlight: string;
  accent: string;
  sans: string;
  mono: string;
}

export interface Drawing {
  layout: Layout;
  boxes: readonly BoxContent[];
  colors: DrawingColors;
  /** Boxes of the highlighted path. */
  pathBoxes: ReadonlySet<number>;
  isPathEdge: (from: number, to: number) => boolean;
  /** Return True if an edge only requires its source to finish, with any outcome. */
  isAnyOutcomeEdge: (from: number, to: number) => boolean;
  /** True while the view is moving; edges that do not fit into a frame are then omitted. */
  isMoving: boolean;
  selectedBox: number | undefined;
  focusedBox: number | undefined;
}

/** Minimum scales for drawing text, symbols and curves. */
const MIN_TEXT_SCALE = 0.6;
const MIN_SYMBOL_SCALE = 0.2;
const MIN_CURVE_SCALE = 0.08;
/** Number of edges per stroke; longer paths are slower than several short ones. */
const EDGES_PER_STROKE = 400;
/**
 * Maximum number of edges drawn while moving and at rest; of larger graphs only every second, third ... edge is drawn.
 */
const MAX_EDGES_MOVING = 4000;
export const MAX_EDGES = 20_000;
/** Maximum number of boxes in the overview map; of larger graphs only every second, third ... box is drawn. */
const MAX_MAP_BOXES = 3000;
const FAINT_ALPHA = 0.22;
/** Width of a title's letter in pixels. */
const TITLE_LETTER_WIDTH = 7.3;
const NOTE_LETTER_WIDTH = 5.6;

/** Shorten a text in the middle, because sibling names differ at their ends. */
export function shortenText(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const tail = Math.floor((letters - 1) * 0.6);
  return `${text.slice(0, Math.max(0, letters - 1 - tail))}…${tail > 0 ? text.slice(-tail) : ""}`;
}

export function drawGraph(context: CanvasRenderingContext2D, drawing: Drawing, view: View, window: Size): void {
  context.save();
  context.scale(view.scale, view.scale);
  context.translate(-view.x, -view.y);
  const area = visibleArea(view, window);
  drawEdges(context, drawing, view, area);
  for (let box = 0; box < drawing.boxes.length; box += 1)
    if (isBoxVisible(drawing.layout, box, area)) drawBox(context, drawing, box, view);
  context.restore();
  drawMap(context, drawing, view, window);
}

/** Draw an overview map with a frame around the visible part. */
function drawMap(
  context: CanvasRenderingContext2D,
  { layout, boxes, colors: paint }: Drawing,
  view: View,
  window: Size,
): void {
  const map = mapRect(layout, view, window);
  if (!map) return;
  context.save();
  context.beginPath();
  context.rect(map.left, map.top, map.width, map.height);
  context.fillStyle = paint.surface;
  context.fill();
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  context.stroke();
  context.clip();
  const [boxWidth, boxHeight] = [Math.max(1.5, BOX.width * map.scale), Math.max(1.5, BOX.height * map.scale)];
  const step = Math.ceil(boxes.length / MAX_MAP_BOXES);
  for (let box = 0; box < boxes.length; box += step) {
    const content = boxes[box] as BoxContent;
    context.fillStyle = content.style.color;
    context.globalAlpha = content.isFaint ? FAINT_ALPHA : 1;
    context.fillRect(
      map.left + (layout.x[box] as number) * map.scale,
      map.top + (layout.y[box] as number) * map.scale,
      boxWidth,
      boxHeight,
    );
  }
  context.globalAlpha = 1;
  context.strokeStyle = paint.ink;
  context.lineWidth = 1.5;
  const toMap = (start: number, left: number) => left + start * map.scale;
  const mapLength = (length: number) => (length / view.scale) * map.scale;
  context.strokeRect(
    toMap(view.x, map.left),
    toMap(view.y, map.top),
    mapLength(window.width),
    mapLength(window.height),
  );
  context.restore();
}

interface VisibleArea {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

function visibleArea({ x, y, scale }: View, { width, height }: Size): VisibleArea {
  return { left: x, right: x + width / scale, top: y, bottom: y + height / scale };
}

function isBoxVisible({ x, y }: Layout, box: number, { left, right, top, bottom }: VisibleArea): boolean {
  const [atX, atY] = [x[box] as number, y[box] as number];
  return atX + BOX.width >= left && atX <= right && atY + BOX.height >= top && atY <= bottom;
}

// -- edges ------------------------------------------------------------------------------------------------------------

function isEdgeVisible(points: Float32Array, { left, right, top, bottom }: VisibleArea): boolean {
  if ((points[0] as number) > right || (points.at(-2) as number) < left) return false;
  let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let at = 1; at < points.length; at += 2) {
    const y = points[at] as number;
    if (y < min) min = y;
    if (y > max) max = y;
  }
  return max >= top && min <= bottom;
}

function tracePath(context: CanvasRenderingContext2D, points: Float32Array, isCurved: boolean): void {
  context.moveTo(points[0] as number, points[1] as number);
  for (let at = 2; at < points.length; at += 2) {
    const [x, y] = [points[at] as number, points[at + 1] as number];
    const [lastX, lastY] = [points[at - 2] as number, points[at - 1] as number];
    if (!isCurved || y === lastY) context.lineTo(x, y);
    else {
      const middle = (lastX + x) / 2;
      context.bezierCurveTo(middle, lastY, middle, y, x, y);
    }
  }
}

/** Return n if only every n-th edge is drawn. */
export function edgeStep(edges: number): number {
  return Math.ceil(edges / MAX_EDGES);
}

function drawEdges(context: CanvasRenderingContext2D, drawing: Drawing, { scale }: View, area: VisibleArea): void {
  const { layout, pathBoxes, isPathEdge, isAnyOutcomeEdge, colors: paint } = drawing;
  const [pathEdges, dashedEdges]: [Float32Array[], Float32Array[]] = [[], []];
  const isCurved = scale >= MIN_CURVE_SCALE;
  context.strokeStyle = paint.line;
  context.lineWidth = Math.max(1, 0.75 / scale);
  context.globalAlpha = pathBoxes.size ? FAINT_ALPHA + 0.15 : 0.75;
  const step = drawing.isMoving && layout.edges.length > MAX_EDGES_MOVING ? 0 : edgeStep(layout.edges.length);
  let count = 0;
  context.beginPath();
  for (const [index, { from, to, points }] of layout.edges.entries()) {
    if (!isEdgeVisible(points, area)) continue;
    if (pathBoxes.size && isPathEdge(from, to)) pathEdges.push(points);
    else if (!step || index % step) continue;
    else if (isAnyOutcomeEdge(from, to)) dashedEdges.push(points);
    else {
      tracePath(context, points, isCurved);
      count += 1;
      if (count % EDGES_PER_STROKE === 0) {
        context.stroke();
        context.beginPath();
      }
    }
  }
  context.stroke();
  if (dashedEdges.length) {
    context.setLineDash([5, 4]);
    context.beginPath();
    for (const points of dashedEdges) tracePath(context, points, isCurved);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
  if (!pathEdges.length) return;
  context.strokeStyle = paint.highlight;
  context.lineWidth = Math.max(2.5, 2 / scale);
  context.beginPath();
  for (const points of pathEdges) tracePath(context, points, isCurved);
  context.stroke();
}

// -- boxes ------------------------------------------------------------------------------------------------------------

function drawBox(context: CanvasRenderingContext2D, drawing: Drawing, box: number, { scale }: View): void {
  const { layout, colors: paint, pathBoxes } = drawing;
  const content = drawing.boxes[box] as BoxContent;
  const [x, y] = [layout.x[box] as number, layout.y[box] as number];
  context.globalAlpha = content.isFaint ? FAINT_ALPHA : 1;
  if (scale < MIN_SYMBOL_SCALE) {
    context.fillStyle = content.style.color;
    // At least two pixels on the screen at any scale.
    context.fillRect(x, y, Math.max(BOX.width, 2 / scale), Math.max(BOX.height, 2 / scale));
    if (box === drawing.selectedBox || box === drawing.focusedBox) drawFrame(context, drawing, box, x, y, scale);
    context.globalAlpha = 1;
    return;
  }
  if (content.isGroup) drawBackground(context, paint, x + 4, y + 4);
  drawBackground(context, paint, x, y);
  context.fillStyle = content.style.color;
  context.fillRect(x, y, scale < MIN_TEXT_SCALE ? BOX.height : 5, BOX.height);
  if (pathBoxes.has(box)) {
    context.strokeStyle = paint.highlight;
    context.lineWidth = 2.5;
    context.strokeRect(x, y, BOX.width, BOX.height);
  }
  if (scale < MIN_TEXT_SCALE) drawLargeSymbol(context, content, paint, x, y);
  else drawText(context, content, paint, x, y);
  drawShares(context, content, x, y);
  drawFrame(context, drawing, box, x, y, scale);
  context.globalAlpha = 1;
}

function drawBackground(context: CanvasRenderingContext2D, paint: DrawingColors, x: number, y: number): void {
  context.fillStyle = paint.surface;
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  context.fillRect(x, y, BOX.width, BOX.height);
  context.strokeRect(x + 0.5, y + 0.5, BOX.width - 1, BOX.height - 1);
}

/** The selected box has a thick frame; the box with the keyboard focus has a thin frame around it. */
function drawFrame(
  context: CanvasRenderingContext2D,
  drawing: Drawing,
  box: number,
  x: number,
  y: number,
  scale: number,
): void {
  context.globalAlpha = 1;
  const drawOutline = (color: string, width: number, outside: number) => {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(x - outside, y - outside, BOX.width + 2 * outside, BOX.height + 2 * outside);
  };
  const unit = Math.max(1, 1 / scale);
  if (box === drawing.selectedBox) drawOutline(drawing.colors.ink, 2 * unit, 0);
  if (box === drawing.focusedBox) drawOutline(drawing.colors.accent, 2 * unit, 3 * unit);
}

function drawLargeSymbol(
  context: CanvasRenderingContext2D,
  { style: look }: BoxContent,
  paint: DrawingColors,
  x: number,
  y: number,
): void {
  context.strokeStyle = context.fillStyle = paint.surface;
  drawSymbol(context, look.symbol, x + BOX.height / 2, y + BOX.height / 2, 10);
}

function drawText(
  context: CanvasRenderingContext2D,
  { title, note, style: look }: BoxContent,
  paint: DrawingColors,
  x: number,
  y: number,
): void {
  context.strokeStyle = context.fillStyle = look.color;
  drawSymbol(context, look.symbol, x + 18, y + 11, 5.5);
  context.textBaseline = "alphabetic";
  context.fillStyle = paint.ink;
  context.font = `12px ${paint.mono}`;
  context.fillText(shortenText(title, Math.floor((BOX.width - 34) / TITLE_LETTER_WIDTH)), x + 30, y + 15);
  context.fillStyle = paint.secondary;
  context.font = `10px ${paint.sans}`;
  const maxLetters = Math.floor((BOX.width - 20) / NOTE_LETTER_WIDTH);
  context.fillText(note.length > maxLetters ? `${note.slice(0, maxLetters - 1)}…` : note, x + 12, y + 28);
}

function drawShares(context: CanvasRenderingContext2D, { shares }: BoxContent, x: number, y: number): void {
  let left = x;
  for (const [color, share] of shares) {
    context.fillStyle = color;
    context.fillRect(left, y + BOX.height - 4, BOX.width * share, 4);
    left += BOX.width * share;
  }
}

/** Draw a symbol around a point with the current colors. */
export function drawSymbol(
  context: CanvasRenderingContext2D,
  sign: StateSymbol,
  x: number,
  y: number,
  r: number,
): void {
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
