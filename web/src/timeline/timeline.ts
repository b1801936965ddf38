/** Lanes of cores on a 2D canvas: shares of time per pixel, slices if they are wide enough, and arrows for steals. */

import {
  lastStartedSlice,
  countBusyCores,
  computePixelShares,
  createPixelShares,
  waitLevel,
  type Mode,
  type PixelShares,
} from "./sums";
import type { LoadedTrace } from "./load";
import { BLOCKED, NONE, RUN, STEAL, STOLEN, countUpTo, threadPath, threadSlices, type Trace } from "./model";
import { cssColor, rampColor, type Palette } from "./palette";
import { viewTicks, formatTick, type View } from "./view";

export interface Frame {
  left: number;
  width: number;
  lane: number;
  cores: number;
}

export interface LineColors {
  ink: string;
  secondary: string;
  line: string;
  accent: string;
  background: string;
  /** Color around the selected slices. */
  halo: string;
}

export interface Scene {
  loaded: LoadedTrace;
  view: View;
  mode: Mode;
  palette: Palette;
  colors: LineColors;
  /** The marked range. */
  range: View | undefined;
  /** The playhead; later parts are dimmed. */
  playhead: number | undefined;
  /** The cursor, shared with the compared picture. */
  cursor: number | undefined;
  hasArrows: boolean;
  /** Outlined threads: those of the critical path, and the selected one. */
  criticalPath: readonly number[];
  selectedThread: number;
  family: readonly number[];
  /** Maximum height of the lanes in pixels. */
  height: number;
  /** Device pixels per CSS pixel. */
  scale: number;
}

/** Height of the lanes of a single picture, and of each of two pictures on one screen. */
export const FULL_HEIGHT = 340,
  HALF_HEIGHT = 150;
const AXIS_HEIGHT = 20;
/** Minimum width in pixels of slices with an edge. */
const MIN_EDGE_WIDTH = 5;
const MIN_LABEL_WIDTH = 44;
/** Maximum number of visible steals drawn as arrows; more are drawn as ticks. */
export const MAX_ARROWS = 300;

export function createFrame(width: number, cores: number, maxHeight = FULL_HEIGHT): Frame {
  const left = width < 480 ? 32 : 60;
  return {
    left,
    width: Math.max(1, width - left - 4),
    lane: Math.max(maxHeight < FULL_HEIGHT ? 5 : 7, Math.min(30, Math.floor(maxHeight / cores))),
    cores,
  };
}

export function frameHeight(frame: Frame): number {
  return frame.lane * frame.cores + AXIS_HEIGHT;
}

export function xOf(frame: Frame, { t0, t1 }: View, time: number): number {
  return frame.left + ((time - t0) / (t1 - t0)) * frame.width;
}

export function timeAt(frame: Frame, { t0, t1 }: View, x: number): number {
  return t0 + ((x - frame.left) / frame.width) * (t1 - t0);
}

export function coreAt(frame: Frame, y: number): number | undefined {
  const core = Math.floor(y / frame.lane);
  return core >= 0 && core < frame.cores ? core : undefined;
}

/** Return the slice at a point, or within two pixels of it. */
export function sliceAt({ trace, index }: LoadedTrace, frame: Frame, view: View, x: number, y: number): number {
  const core = coreAt(frame, y);
  if (core === undefined || x < frame.left) return NONE;
  const time = timeAt(frame, view, x);
  const near = (2 / frame.width) * (view.t1 - view.t0);
  const slice = lastStartedSlice(trace, index, core, time + near);
  return slice >= (trace.lanes[core] as number) && time - near <= (trace.end[slice] as number) ? slice : NONE;
}

// -- pixels ---------------------------------------------------------------------------------------------------------

let pixelShares: PixelShares = createPixelShares(1);
let pixels: ImageData | undefined;
let pixelCanvas: HTMLCanvasElement | undefined;

/** Draw one row of pixels per core, mixing the states in each pixel. */
function paintPixels(scene: Scene, width: number): HTMLCanvasElement {
  const { trace, index } = scene.loaded;
  pixelCanvas ??= document.createElement("canvas");
  const context = pixelCanvas.getContext("2d") as CanvasRenderingContext2D;
  if (pixelCanvas.width !== width || pixelCanvas.height !== trace.cores)
    [pixelCanvas.width, pixelCanvas.height, pixels] = [width, trace.cores, undefined];
  pixels ??= context.createImageData(width, trace.cores);
  if (pixelShares.busy.length !== width) pixelShares = createPixelShares(width);
  const words = new Uint32Array(pixels.data.buffer);
  const scale = scene.mode === "depth" ? 255 / Math.max(1, index.maxDepth) : 255;
  for (let core = 0; core < trace.cores; core += 1) {
    computePixelShares(trace, index, core, scene.view.t0, scene.view.t1, scene.mode, pixelShares);
    mixPixels(pixelShares, scene.palette, scale, words.subarray(core * width, (core + 1) * width));
  }
  context.putImageData(pixels, 0, 0);
  return pixelCanvas;
}

function mixPixels(
  { busy, steal, blocked, level }: PixelShares,
  { ramp, steal: stealing, blocked: held }: Palette,
  scale: number,
  words: Uint32Array,
): void {
  for (let pixel = 0; pixel < words.length; pixel += 1) {
    const [b, s, h] = [busy[pixel] as number, steal[pixel] as number, blocked[pixel] as number];
    const total = b + s + h;
    if (total <= 0) {
      words[pixel] = 0;
      continue;
    }
    const at = 3 * Math.min(255, Math.round((level[pixel] as number) * scale));
    const part = (channel: 0 | 1 | 2) =>
      (b * (ramp[at + channel] as number) + s * stealing[channel] + h * held[channel]) / total;
    // Idle time shows the background.
    words[pixel] = (Math.round(Math.min(1, total) * 255) << 24) | (part(2) << 16) | (part(1) << 8) | part(0);
  }
}

// -- lanes ----------------------------------------------------------------------------------------------------------

type Context = CanvasRenderingContext2D;

export function drawLanes(context: Context, width: number, scene: Scene): void {
  const { trace } = scene.loaded;
  const frame = createFrame(width, trace.cores, scene.height);
  const bottom = frame.lane * frame.cores;
  drawBackground(context, frame, scene);
  const image = paintPixels(scene, Math.max(1, Math.round(frame.width * scene.scale)));
  context.imageSmoothingEnabled = false;
  const gap = frame.lane >= 12 ? 2 : 1;
  context.drawImage(image, frame.left, 0, frame.width, bottom);
  drawGaps(context, frame, scene, gap);
  context.save();
  context.beginPath();
  context.rect(frame.left, 0, frame.width, bottom);
  context.clip();
  drawSlices(context, frame, scene, gap);
  dimFuture(context, frame, scene, bottom);
  if (scene.selectedThread !== NONE) dimOthers(context, frame, scene, gap, bottom);
  if (scene.criticalPath.length) drawOutline(context, frame, scene, scene.criticalPath, scene.colors.ink, 2);
  if (scene.selectedThread !== NONE) drawHalo(context, frame, scene, gap);
  if (scene.hasArrows) drawArrows(context, frame, scene);
  drawMarks(context, frame, scene, bottom);
  context.restore();
  drawAxis(context, frame, scene, bottom);
}

function drawBackground(context: Context, frame: Frame, scene: Scene): void {
  const { colors: inks } = scene;
  context.fillStyle = cssColor(scene.palette.background);
  const [from, to] = tracePixels(frame, scene);
  context.fillRect(from, 0, to - from, frame.lane * frame.cores);
  context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillStyle = inks.secondary;
  const every = frame.lane >= 12 ? 1 : frame.lane >= 9 ? 2 : 4;
  const word = frame.left > 40 ? "core " : "";
  for (let core = 0; core < frame.cores; core += every)
    context.fillText(`${word}${core}`, frame.left - 5, (core + 0.5) * frame.lane);
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  context.strokeRect(frame.left - 0.5, -0.5, frame.width + 1, frame.lane * frame.cores + 1);
}

/** Return the pixel range of the trace. */
function tracePixels(frame: Frame, { view, loaded: { trace } }: Scene): [number, number] {
  const from = Math.max(frame.left, xOf(frame, view, 0));
  return [from, Math.max(from, Math.min(frame.left + frame.width, xOf(frame, view, trace.until)))];
}

/** Draw the background lines between lanes. */
function drawGaps(context: Context, frame: Frame, scene: Scene, gap: number): void {
  const [from, to] = tracePixels(frame, scene);
  context.fillStyle = cssColor(scene.palette.background);
  for (let core = 0; core <= frame.cores; core += 1)
    context.fillRect(from, core * frame.lane - gap / 2, to - from, gap);
}

/** Draw edges, hatching and names of slices that are wide enough. */
function drawSlices(context: Context, frame: Frame, scene: Scene, gap: number): void {
  const { trace, index } = scene.loaded;
  const { t0, t1 } = scene.view;
  const min = (MIN_EDGE_WIDTH / frame.width) * (t1 - t0);
  const mean = trace.until / Math.max(1, trace.start.length / trace.cores);
  if (mean * 40 < min) return; // only a few slices could be wide enough, and their pixels show the same
  const tall = frame.lane - gap;
  context.textAlign = "left";
  for (let core = 0; core < frame.cores; core += 1) {
    const last = lastStartedSlice(trace, index, core, t1);
    const y = core * frame.lane + gap / 2;
    for (
      let slice = Math.max(trace.lanes[core] as number, lastStartedSlice(trace, index, core, t0));
      slice <= last;
      slice += 1
    ) {
      if ((trace.end[slice] as number) - (trace.start[slice] as number) < min) continue;
      const x = xOf(frame, scene.view, trace.start[slice] as number);
      const wide = xOf(frame, scene.view, trace.end[slice] as number) - x;
      context.fillStyle = cssColor(scene.palette.background);
      context.fillRect(x + wide - 0.5, y, 1, tall);
      if (trace.kind[slice] === STEAL || trace.kind[slice] === BLOCKED)
        drawHatching(context, x, y, wide, tall, scene, trace.kind[slice] === BLOCKED);
      else if (wide >= MIN_LABEL_WIDTH && tall >= 12) drawLabel(context, scene, slice, x, y, wide, tall);
    }
  }
}

function drawHatching(
  context: Context,
  x: number,
  y: number,
  wide: number,
  tall: number,
  { palette: { background: paper } }: Scene,
  down: boolean,
): void {
  context.save();
  context.beginPath();
  const from = Math.max(x, 0);
  context.rect(from, y, Math.min(wide, 4000), tall);
  context.clip();
  context.strokeStyle = cssColor(paper);
  context.lineWidth = 1.5;
  context.beginPath();
  for (let at = from - tall; at < Math.min(x + wide, from + 4000); at += 7) {
    context.moveTo(at, down ? y : y + tall);
    context.lineTo(at + tall, down ? y + tall : y);
  }
  context.stroke();
  context.restore();
}

function luminance(rgb: readonly number[]): number {
  const [red = 0, green = 0, blue = 0] = rgb.map((each) => (each / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Return the value 0..1 behind a slice's color. */
function sliceLevel({ loaded: { trace, index }, mode }: Scene, slice: number): number {
  if (mode === "stolen") return (trace.flags[slice] as number) & STOLEN ? 1 : 0;
  if (mode === "wait") return waitLevel(trace.wait[slice] as number);
  return (trace.threads.depth[trace.thread[slice] as number] as number) / Math.max(1, index.maxDepth);
}

function drawLabel(
  context: Context,
  scene: Scene,
  slice: number,
  x: number,
  y: number,
  wide: number,
  tall: number,
): void {
  const { trace } = scene.loaded;
  const name = threadPath(trace.threads, trace.thread[slice] as number) + (trace.kind[slice] === RUN ? "" : " joins");
  const text = (trace.flags[slice] as number) & STOLEN ? `${name} stolen` : name;
  const from = Math.max(x, 0);
  const maxWidth = x + wide - from - 8;
  const label = context.measureText(text).width <= maxWidth ? text : name;
  if (context.measureText(label).width > maxWidth) return;
  context.fillStyle = luminance(rampColor(scene.palette, sliceLevel(scene, slice))) > 0.22 ? "#101418" : "#ffffff";
  context.fillText(label, from + 4, y + tall / 2 + 0.5);
}

/** Dim the part after the playhead. */
function dimFuture(context: Context, frame: Frame, scene: Scene, bottom: number): void {
  if (scene.playhead === undefined) return;
  const x = Math.max(frame.left, xOf(frame, scene.view, scene.playhead));
  context.globalAlpha = 0.8;
  context.fillStyle = scene.colors.background;
  context.fillRect(x, 0, frame.left + frame.width - x, bottom);
  context.globalAlpha = 1;
}

/** Generate the positions of visible slices of some threads. */
function* sliceBoxes(
  frame: Frame,
  { loaded: { trace }, view }: Scene,
  threads: readonly number[],
): Generator<{ slice: number; x: number; y: number; wide: number }> {
  for (const thread of threads)
    for (const slice of threadSlices(trace, thread)) {
      const x = xOf(frame, view, trace.start[slice] as number);
      const wide = Math.max(2, xOf(frame, view, trace.end[slice] as number) - x);
      if (x > frame.left + frame.width || x + wide < frame.left) continue;
      yield { slice, x, y: laneOf(trace, slice) * frame.lane, wide };
    }
}

/** Dim everything except the selected thread, its ancestors and its children. */
function dimOthers(context: Context, frame: Frame, scene: Scene, gap: number, bottom: number): void {
  context.globalAlpha = 0.6;
  context.fillStyle = cssColor(scene.palette.background);
  context.fillRect(frame.left, 0, frame.width, bottom);
  context.globalAlpha = 1;
  const tall = frame.lane - gap;
  context.textAlign = "left";
  for (const { slice, x, y, wide } of sliceBoxes(frame, scene, [...scene.family, scene.selectedThread])) {
    const kind = scene.loaded.trace.kind[slice];
    const held = kind === BLOCKED;
    context.fillStyle = cssColor(held ? scene.palette.blocked : rampColor(scene.palette, sliceLevel(scene, slice)));
    context.fillRect(x, y + gap / 2, wide - (wide > MIN_EDGE_WIDTH ? 0.5 : 0), tall);
    if (held) drawHatching(context, x, y + gap / 2, wide, tall, scene, true);
    else if (wide >= MIN_LABEL_WIDTH && tall >= 12) drawLabel(context, scene, slice, x, y + gap / 2, wide, tall);
  }
}

/** Draw a bright outline around the slices of the selected thread. */
function drawHalo(context: Context, frame: Frame, scene: Scene, gap: number): void {
  for (const { x, y, wide } of sliceBoxes(frame, scene, [scene.selectedThread])) {
    const box = [x - 1, y + gap / 2 - 0.5, wide + 2, frame.lane - gap + 1] as const;
    context.strokeStyle = scene.colors.halo;
    context.lineWidth = 6;
    context.strokeRect(...box);
    context.strokeStyle = scene.colors.accent;
    context.lineWidth = 2.5;
    context.strokeRect(...box);
  }
}

function drawOutline(
  context: Context,
  frame: Frame,
  scene: Scene,
  threads: readonly number[],
  ink: string,
  thick: number,
): void {
  context.strokeStyle = ink;
  context.lineWidth = thick;
  for (const { x, y, wide } of sliceBoxes(frame, scene, threads))
    context.strokeRect(x, y + thick / 2, wide, frame.lane - thick);
}

function laneOf({ lanes }: Trace, slice: number): number {
  let core = 0;
  while ((lanes[core + 1] as number) <= slice) core += 1;
  return core;
}

/** Draw arrows from victims to thieves, or ticks if there are too many. */
function drawArrows(context: Context, frame: Frame, scene: Scene): void {
  const {
    loaded: { trace },
    view,
    colors: inks,
    playhead: at,
  } = scene;
  const family = new Set([...scene.family, scene.selectedThread]);
  const { time, from, to } = trace.steals;
  const first = countUpTo(time, view.t0);
  const last = countUpTo(time, Math.min(view.t1, at ?? view.t1));
  const many = last - first > MAX_ARROWS;
  context.strokeStyle = context.fillStyle = inks.ink;
  context.lineWidth = 1;
  for (let steal = first; steal < last; steal += many ? Math.ceil((last - first) / 20_000) : 1) {
    const x = Math.round(xOf(frame, view, time[steal] as number)) + 0.5;
    const end = ((to[steal] as number) + 0.5) * frame.lane;
    if (many) {
      context.fillRect(x - 0.5, end - frame.lane / 2, 1, 3);
      continue;
    }
    context.globalAlpha = scene.selectedThread === NONE || family.has(trace.steals.thread[steal] as number) ? 1 : 0.25;
    const begin = ((from[steal] as number) + 0.5) * frame.lane;
    const tip = begin < end ? -4 : 4;
    context.beginPath();
    context.moveTo(x, begin);
    context.lineTo(x, end);
    context.stroke();
    context.beginPath();
    context.arc(x, begin, 1.5, 0, 7);
    context.moveTo(x, end);
    context.lineTo(x - 3, end + tip);
    context.lineTo(x + 3, end + tip);
    context.fill();
  }
  context.globalAlpha = 1;
}

/** Draw the marked range, the cursor and the playhead. */
function drawMarks(
  context: Context,
  frame: Frame,
  { range, playhead: at, cursor, view, colors: inks, loaded: { trace } }: Scene,
  bottom: number,
): void {
  if (range) {
    const [x, to] = [xOf(frame, view, range.t0), xOf(frame, view, range.t1)];
    context.globalAlpha = 0.14;
    context.fillStyle = inks.accent;
    context.fillRect(x, 0, to - x, bottom);
    context.globalAlpha = 1;
    context.fillRect(x - 0.5, 0, 1.5, bottom);
    context.fillRect(to - 1, 0, 1.5, bottom);
  }
  if (cursor !== undefined && cursor <= trace.until) {
    context.fillStyle = inks.secondary;
    context.fillRect(Math.round(xOf(frame, view, cursor)), 0, 1, bottom);
  }
  if (at !== undefined) {
    context.fillStyle = inks.accent;
    const x = Math.round(xOf(frame, view, at));
    context.fillRect(x - 1, 0, 2, bottom);
    context.beginPath();
    context.moveTo(x - 5, 0);
    context.lineTo(x + 5, 0);
    context.lineTo(x, 6);
    context.fill();
  }
}

function drawAxis(context: Context, frame: Frame, { view, colors: inks, loaded: { trace } }: Scene, top: number): void {
  const { step, at } = viewTicks(view, Math.max(2, Math.floor(frame.width / 90)));
  context.fillStyle = inks.secondary;
  context.textBaseline = "middle";
  for (const time of at) {
    const x = Math.round(xOf(frame, view, time));
    context.fillRect(x, top, 1, 4);
    const text = formatTick(time, step, trace.until);
    const half = context.measureText(text).width / 2;
    context.textAlign = "center";
    if (x - half >= 0 && x + half <= frame.left + frame.width + 4) context.fillText(text, x, top + 12);
  }
}

// -- overview -------------------------------------------------------------------------------------------------------

export const OVERVIEW_HEIGHT = 56;

/** Draw the busy cores of the whole trace and the visible part. */
export function drawOverview(context: Context, width: number, scene: Scene): void {
  const { trace, index } = scene.loaded;
  const frame = createFrame(width, trace.cores);
  const all = { t0: 0, t1: trace.until };
  const [tall, foot] = [OVERVIEW_HEIGHT - 8, OVERVIEW_HEIGHT - 4];
  const busy = countBusyCores(trace, index, 0, trace.until, Math.round(frame.width));
  context.fillStyle = cssColor(scene.palette.background);
  context.fillRect(frame.left, foot - tall, frame.width, tall);
  context.fillStyle = cssColor(rampColor(scene.palette, 0.35));
  for (const [pixel, count] of busy.entries())
    context.fillRect(frame.left + pixel, foot - (count / trace.cores) * tall, 1.02, (count / trace.cores) * tall);
  context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = scene.colors.secondary;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(String(trace.cores), frame.left - 5, foot - tall + 5);
  context.fillText("0", frame.left - 5, foot - 4);
  if (frame.left > 40) context.fillText("busy", frame.left - 5, foot - tall / 2);
  const [from, to] = [
    Math.max(frame.left, xOf(frame, all, scene.view.t0)),
    Math.min(frame.left + frame.width, xOf(frame, all, scene.view.t1)),
  ];
  context.globalAlpha = 0.72;
  context.fillStyle = scene.colors.background;
  context.fillRect(frame.left, foot - tall, from - frame.left, tall);
  context.fillRect(to, foot - tall, frame.left + frame.width - to, tall);
  context.globalAlpha = 1;
  context.strokeStyle = scene.colors.accent;
  context.lineWidth = 1.5;
  context.strokeRect(from, foot - tall, Math.max(2, to - from), tall);
  drawMarks(context, { ...frame, lane: OVERVIEW_HEIGHT, cores: 1 }, { ...scene, view: all }, OVERVIEW_HEIGHT);
}

/** Return the time at a point of the overview. */
export function overviewTimeAt(width: number, { cores, until }: Trace, x: number): number {
  const frame = createFrame(width, cores);
  return Math.max(0, Math.min(until, timeAt(frame, { t0: 0, t1: until }, x)));
}
