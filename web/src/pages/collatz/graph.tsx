/** Chart of steps over n: counts if numbers are narrower than pixels, otherwise single points. */

import { effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { fromPixels, type ExactChunk } from "./model/layers";
import { bitLength } from "./model/number";
import { overlappingChunks, distance, moveView, panView, visibleRange, zoomView, type Range } from "./model/view";
import type { Sample } from "./model/sample";
import { computeTrajectory } from "./model/trajectory";
import { createPainter } from "../../density/density";
import type { Painter } from "../../density/painter";
import { formatCompact, formatInteger } from "../../lib/format";
import { isDark, isTouchScreen } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Figure, isTableMode } from "../../ui/figure";
import { lazy } from "../../ui/lazy";
import type { Picture } from "../../ui/picture";
import { drawAxes, drawOverlay, MARGIN, type Ring } from "./model/axes";
import {
  workerError,
  findDensities,
  MAX_EXACT,
  getExact,
  isExact,
  dataVersion,
  requestValues,
  findSample,
  findSamples,
} from "./model/data";
import { CountProgress, CountButton } from "./count";
import { Legend } from "./legend";
import { records } from "./model/run";
import { useSavable } from "./model/savable-pictures";
import { createScene, type Scene } from "./model/scene";
import {
  showTrajectory,
  limits,
  setView,
  metric,
  pointedNumber,
  range,
  selectRange,
  selection,
  state,
  view,
} from "./model/state";

const Coverage = lazy(() => import("./coverage").then((part) => part.Coverage), 2);

/** The displayed scene; undefined before the first picture. */
export const drawnScene = signal<Scene | undefined>(undefined);
/** How the scene was drawn, and the drawing time. */
const drawingInfo = signal<{ kind: string; software: boolean; ms: number }>({ kind: "", software: false, ms: 0 });
/** The selection while the pointer draws it. */
const brushedRange = signal<Range | undefined>(undefined);

interface Canvases {
  data: HTMLCanvasElement;
  under: HTMLCanvasElement;
  over: HTMLCanvasElement;
}

let canvases: Canvases | undefined;
let dataPainter: Painter | undefined;

function createRings(): Ring[] {
  const { delay, path } = records.value;
  const steps = (n: bigint) => computeTrajectory(n).delay;
  const inView = visibleRange(view.value, limits);
  const near = ({ n }: { n: bigint }) => n >= inView.first && n < inView.end;
  return [
    ...path.filter(near).map(({ n }) => ({ n, steps: steps(n), kind: "path" as const })),
    ...delay.filter(near).map(({ n, value }) => ({ n, steps: Number(value), kind: "delay" as const })),
  ];
}

function resizeCanvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  scale: number,
): CanvasRenderingContext2D | null {
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context?.setTransform(scale, 0, 0, scale, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

/** Maximum number of visible numbers for which all chunks are looked up. */
const MAX_LOOKUPS = BigInt(2 * MAX_EXACT);

/** Return the exact chunks to draw: most of the view or none; on a log axis also the start of a wide view. */
function exactChunks(now: Range): ExactChunk[] {
  const wide = now.end - now.first > MAX_LOOKUPS;
  if (wide && !state.log.value) return [];
  const part = wide ? { first: now.first, end: now.first + MAX_LOOKUPS } : now;
  const known = getExact(part);
  return wide || 2 * known.length >= overlappingChunks(part).length ? known : [];
}

/** Draw the data. The WebGL canvas keeps its content only until the current task ends. */
function paintData(): void {
  if (!canvases || !dataPainter) return;
  const box = canvases.under.parentElement as HTMLElement;
  const scale = devicePixelRatio || 1;
  const [width, height] = [box.clientWidth - MARGIN.left - MARGIN.right, box.clientHeight - MARGIN.top - MARGIN.bottom];
  if (width < 20 || height < 20) return;
  const began = performance.now();
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvases.data.width !== wide || canvases.data.height !== high)
    Object.assign(canvases.data, { width: wide, height: high });
  dataVersion.value;
  const now = visibleRange(view.value, limits);
  const picture = createScene(
    {
      view: view.value,
      isLog: state.log.value,
      metric: metric.value,
      modulus: Math.max(2, Math.min(8, state.mod.value)),
      isDark: isDark.value,
      width: wide,
      height: high,
      scale,
      maxPoints: dataPainter.maxPoints,
    },
    {
      exact: exactChunks(now),
      isComplete: isExact(now),
      densities: findDensities(now),
      samples: findSamples(now),
    },
  );
  if (picture.points) dataPainter.drawPoints(picture.points, picture.colorScale);
  else if (picture.grid) dataPainter.drawGrid(picture.grid, picture.colorScale);
  else dataPainter.clear();
  drawnScene.value = picture;
  drawingInfo.value = { kind: dataPainter.kind, software: dataPainter.isSoftware, ms: performance.now() - began };
}

/** Draw the axes below the data and the marks above; only the marks follow the pointer. */
function paintOverlay(): void {
  const picture = drawnScene.value;
  if (!canvases || !picture) return;
  const { under, over } = canvases;
  const box = under.parentElement as HTMLElement;
  const scale = devicePixelRatio || 1;
  const [width, height] = [box.clientWidth - MARGIN.left - MARGIN.right, box.clientHeight - MARGIN.top - MARGIN.bottom];
  const below = resizeCanvas(under, box.clientWidth, box.clientHeight, scale);
  if (below) drawAxes(below, picture, width, height);
  const above = resizeCanvas(over, box.clientWidth, box.clientHeight, scale);
  const at = pointedNumber.value;
  const point = at !== undefined && at > 0n ? { n: at, steps: computeTrajectory(at).delay } : undefined;
  if (above)
    drawOverlay(
      above,
      picture,
      { rings: createRings(), pointed: point, selectedRange: brushedRange.value ?? selection.value },
      width,
      height,
    );
}

/** Draw the picture with its axes on one canvas, because WebGL keeps no content. */
function composePicture(): Picture | undefined {
  if (!canvases) return undefined;
  paintData();
  paintOverlay();
  const { under, data, over } = canvases;
  const scale = devicePixelRatio || 1;
  const canvas = Object.assign(document.createElement("canvas"), { width: under.width, height: under.height });
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  context.drawImage(under, 0, 0);
  context.drawImage(data, MARGIN.left * scale, MARGIN.top * scale);
  context.drawImage(over, 0, 0);
  const { clientWidth: width, clientHeight: height } = under;
  return {
    title: pictureTitle(),
    lines: [summaryText()],
    width,
    height,
    draw: (to) => to.drawImage(canvas, 0, 0, width, height),
  };
}

/** Compute missing numbers in this page. */
function computeMissing(): () => void {
  return effect(() => requestValues(visibleRange(view.value, limits), state.log.value));
}

// -- actions --------------------------------------------------------------------------------------------------------

export function zoomBy(factor: number, position = 0.5): void {
  setView(zoomView(view.peek(), factor, position, limits));
}

export function panBy(share: number): void {
  setView(panView(view.peek(), share, limits));
}

/** Select the visible range, or clear the selection if it is already selected. */
export function toggleSelection(): void {
  selectRange(selection.peek() ? undefined : visibleRange(view.peek(), limits));
}

/** Return the pointer's position as a fraction of the width and as a number. */
function pointerPosition(event: MouseEvent): { share: number; n: bigint } {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const width = box.width - MARGIN.left - MARGIN.right;
  const share = Math.min(1, Math.max(0, (event.clientX - box.left - MARGIN.left) / width));
  const frame = drawnScene.peek()?.frame ?? { view: view.peek(), log: false, low: 0, high: 1 };
  const far = fromPixels(frame, 1)(Math.min(share, 1 - 1e-9));
  return { share, n: moveView(frame.view, far).base };
}

/** Return the drawn number nearest to the pointer. */
function nearestNumber(event: MouseEvent): bigint | undefined {
  const picture = drawnScene.peek();
  const { n } = pointerPosition(event);
  if (n < 1n) return undefined;
  if (picture?.source !== "exact") return n;
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const height = box.height - MARGIN.top - MARGIN.bottom;
  const { low, high } = picture.frame;
  const steps = low + (1 - (event.clientY - box.top - MARGIN.top) / height) * (high - low);
  return (
    closestNumber(n, steps, Math.ceil(picture.frame.view.span / (box.width - MARGIN.left - MARGIN.right)) * 3) ?? n
  );
}

/** Return the number within `reach` of n whose delay is closest to `steps`. */
function closestNumber(n: bigint, steps: number, reach: number): bigint | undefined {
  let best: { n: bigint; off: number } | undefined;
  const from = n > BigInt(reach) ? n - BigInt(reach) : 1n;
  for (const exact of getExact({ first: from, end: n + BigInt(reach) })) {
    const start = Math.max(0, Number(from - exact.start));
    const end = Math.min(exact.delays.length, Number(n - exact.start) + reach);
    for (let index = start; index < end; index += 1) {
      const off = Math.abs((exact.delays[index] as number) - steps) + Math.abs(Number(exact.start - n) + index) / reach;
      if (!best || off < best.off) best = { n: exact.start + BigInt(index), off };
    }
  }
  return best?.n;
}

interface Drag {
  x: number;
  share: number;
  n: bigint;
  isBrushing: boolean;
  hasMoved: boolean;
  view: ReturnType<typeof view.peek>;
}

const pointers = new Map<number, number>();

function usePointer() {
  const drag = useRef<Drag | undefined>(undefined);
  const pinch = useRef(0);
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const box = event.currentTarget as HTMLElement;
    box.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
    const { share, n } = pointerPosition(event);
    drag.current = {
      x: event.clientX,
      share,
      n,
      isBrushing: event.shiftKey || isBrushMode.peek(),
      hasMoved: false,
      view: view.peek(),
    };
    pinch.current = pointerSpread();
  };
  const move = (event: PointerEvent) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event.clientX);
    const at = drag.current;
    if (!at) {
      pointedNumber.value = nearestNumber(event);
      return;
    }
    if (pointers.size > 1) return pinched(event);
    if (Math.abs(event.clientX - at.x) > 3) at.hasMoved = true;
    if (!at.hasMoved) return;
    const { share, n } = pointerPosition(event);
    if (at.isBrushing)
      brushedRange.value =
        n < at.n ? { first: n > 0n ? n : 1n, end: at.n + 1n } : { first: at.n > 0n ? at.n : 1n, end: n + 1n };
    else setView(panView(at.view, at.share - share, limits));
  };
  const pinched = (event: PointerEvent) => {
    const now = pointerSpread();
    if (pinch.current > 0 && now > 0) zoomBy(pinch.current / now, pointerPosition(event).share);
    pinch.current = now;
    if (drag.current) drag.current.hasMoved = true;
  };
  const up = (event: PointerEvent) => {
    pointers.delete(event.pointerId);
    const at = drag.current;
    if (pointers.size) return;
    drag.current = undefined;
    if (!at) return;
    if (at.isBrushing && brushedRange.peek()) selectRange(brushedRange.peek());
    brushedRange.value = undefined;
    if (at.hasMoved) return state.commit();
    const n = nearestNumber(event);
    if (n !== undefined) showTrajectory(n);
  };
  const leave = () => {
    if (!drag.current) pointedNumber.value = undefined;
  };
  return { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up, onPointerLeave: leave };
}

function pointerSpread(): number {
  const [one, other] = [...pointers.values()];
  return one === undefined || other === undefined ? 0 : Math.abs(one - other);
}

/** True if dragging selects instead of moving, for devices without a Shift key. */
const isBrushMode = signal(false);

// -- the component --------------------------------------------------------------------------------------------------

function useScene() {
  const data = useRef<HTMLCanvasElement>(null);
  const under = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!data.current || !under.current || !over.current) return undefined;
    const canvas = data.current;
    canvases = { data: canvas, under: under.current, over: over.current };
    dataPainter = createPainter(canvas);
    let frame = 0;
    const again = signal(0);
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        again.value = again.peek() + 1;
      });
    };
    const revive = () => {
      dataPainter = createPainter(canvas);
      soon();
    };
    const lost = (event: Event) => event.preventDefault();
    canvas.addEventListener("webglcontextlost", lost);
    canvas.addEventListener("webglcontextrestored", revive);
    const stopPaint = effect(() => {
      again.value;
      paintData();
    });
    const stopOver = effect(paintOverlay);
    const stopGather = computeMissing();
    const watcher = new ResizeObserver(soon);
    watcher.observe(under.current);
    return () => {
      canvas.removeEventListener("webglcontextlost", lost);
      canvas.removeEventListener("webglcontextrestored", revive);
      cancelAnimationFrame(frame);
      stopPaint();
      stopOver();
      stopGather();
      watcher.disconnect();
      dataPainter?.dispose();
      canvases = dataPainter = undefined;
      drawnScene.value = undefined;
    };
  }, [isTableMode.value]);
  return { data, under, over };
}

/** Return the title of the saved picture. */
function pictureTitle(): string {
  const { first, end } = visibleRange(view.value, limits);
  return `Collatz: steps to 1 for n from ${formatInteger(first)} to ${formatInteger(end - 1n)}`;
}

function summaryText(): string {
  const now = visibleRange(view.value, limits);
  const picture = drawnScene.value;
  const head = `Steps to 1 of ${formatInteger(now.first)} to ${formatInteger(now.end - 1n)}`;
  if (!picture || picture.source === "none") return `${head}: being computed.`;
  const { low, high } = picture.frame;
  const what = {
    points: "every number a point",
    exact: `every number counted, ${formatInteger(picture.litPixels)} pixels lit`,
    columns: "columns of jobs, single numbers where there are none",
    sample: `${formatInteger(findSample(now)?.distance.length ?? picture.numbers)} numbers spread over the range`,
    none: "",
  };
  return (
    `${head}, between ${low} and ${high} steps: ${what[picture.source]}. ${records.value.delay.length} delay ` +
    `records are ringed.`
  );
}

/** Return the numbers of a sample, exact within the precision of doubles. */
function createSampleTable({ range, distance: far, delays, bits }: Sample, { first, end }: Range) {
  const rows: string[][] = [];
  for (const [index, off] of far.entries()) {
    const n = range.first + BigInt(off);
    if (n < first || n >= end) continue;
    if (rows.length === 1000) break;
    rows.push([off < 2 ** 53 ? formatInteger(n) : formatCompact(n), String(delays[index]), String(bits[index])]);
  }
  return { head: ["n of the sample", "steps", "bits of the peak"], rows };
}

function createTable() {
  const now = visibleRange(view.value, limits);
  const rows: string[][] = [];
  if (isExact(now)) {
    for (const exact of getExact(now)) {
      for (
        let index = Math.max(0, Number(now.first - exact.start));
        index < exact.delays.length && rows.length < 1000;
        index += 1
      ) {
        const n = exact.start + BigInt(index);
        if (n >= now.end) break;
        rows.push([formatInteger(n), String(exact.delays[index]), String(exact.bits[index])]);
      }
    }
    return { head: ["n", "steps", "bits of the peak"], rows };
  }
  const spread = drawnScene.peek()?.source === "sample" ? findSample(now) : undefined;
  if (spread) return createSampleTable(spread, now);
  const finestOne = findDensities(now).at(-1);
  for (let column = 0; finestOne && column < finestOne.offset.length; column += 1) {
    const first = finestOne.start + BigInt(finestOne.offset[column] as number);
    if (first < now.first || first >= now.end) continue;
    const [from, to] = [finestOne.first[column] as number, finestOne.first[column + 1] as number];
    rows.push([
      formatInteger(first),
      formatInteger(finestOne.count[column] ?? 0),
      String(finestOne.delay[from]),
      String(finestOne.delay[to - 1]),
    ]);
  }
  return { head: ["column from n", "numbers", "least steps", "most steps"], rows };
}

export function Graph() {
  const at = useScene();
  const hands = usePointer();
  useSavable("graph", composePicture);
  const wheel = useSignal(0);
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = container.current;
    const roll = (event: WheelEvent) => {
      event.preventDefault();
      const { share } = pointerPosition(event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) panBy(event.deltaX / 1000);
      else zoomBy(1.0015 ** event.deltaY, share);
      clearTimeout(wheel.peek());
      wheel.value = window.setTimeout(() => state.commit(), 600);
    };
    element?.addEventListener("wheel", roll, { passive: false });
    return () => element?.removeEventListener("wheel", roll);
  }, [isTableMode.value]);
  const summary = summaryText();
  return (
    <Figure summary={summary} getTable={createTable} class="graph">
      <div class="picture" ref={container} data-brush={isBrushMode.value} {...hands}>
        <canvas ref={at.under} class="fill" aria-hidden="true" />
        <canvas
          ref={at.data}
          class="data"
          aria-hidden="true"
          style={{ left: `${MARGIN.left}px`, top: `${MARGIN.top}px` }}
          data-kind={drawingInfo.value.kind}
          data-source={drawnScene.value?.source ?? "none"}
          data-lit={drawnScene.value?.litPixels ?? 0}
          data-numbers={drawnScene.value?.numbers ?? 0}
          data-low={drawnScene.value?.frame.low}
          data-high={drawnScene.value?.frame.high}
          data-ms={drawingInfo.value.ms.toFixed(1)}
        />
        <canvas ref={at.over} class="fill" role="img" aria-label={summary} />
        <MissingNotes />
        <CountProgress />
      </div>
      <div class="under-picture">
        <Legend scene={drawnScene.value} />
        <PointedNumber />
        <span class="grow" />
        <ZoomControls />
      </div>
      <Coverage />
    </Figure>
  );
}

/** Explains what the picture does not show. */
function MissingNotes() {
  const now = visibleRange(view.value, limits);
  const source = drawnScene.value?.source;
  if (workerError.value) return <p class="missing trouble">The page cannot compute: {workerError.value}. Reload it.</p>;
  if (source === "sample")
    return (
      <p class="missing note" role="status">
        {formatInteger(findSample(now)?.distance.length ?? 0)} of {formatCompact(now.end - now.first)} numbers, spread
        evenly
      </p>
    );
  if (source === "columns" && metric.value !== "count")
    return (
      <p class="missing note" role="status">
        columns have counts only
      </p>
    );
  return null;
}

/** n, steps and peak at the pointer. */
function PointedNumber() {
  const n = pointedNumber.value;
  if (n === undefined || n < 1n)
    return (
      <p class="pointed soft small">
        {isTouchScreen ? "Tap a number for its trajectory." : "Point at a number; a click shows its trajectory."}
      </p>
    );
  const { delay, peak } = computeTrajectory(n);
  return (
    <p class="pointed num small">
      n {formatInteger(n)} · {delay} steps · peak {bitLength(peak) < 90 ? formatInteger(peak) : formatCompact(peak)}
    </p>
  );
}

/** Offers to count the visible numbers if the picture is coarser. */
function ZoomControls() {
  const full = !state.span.value;
  return (
    <span class="row tools">
      <CountButton picture={drawnScene.value} />
      <Button aria-pressed={isBrushMode.value} onClick={() => (isBrushMode.value = !isBrushMode.value)}>
        Select
      </Button>
      <Button aria-label="Zoom out" onClick={() => zoomBy(2)}>
        −
      </Button>
      <Button aria-label="Zoom in" onClick={() => zoomBy(0.5)}>
        +
      </Button>
      <Button
        disabled={full}
        onClick={() => {
          state.x.value = "";
          state.span.value = 0;
          state.commit();
        }}
      >
        All of {formatCompact(range.value.end - range.value.first)}
      </Button>
    </span>
  );
}

/** Move the pointed number with keys. */
export function movePointed(by: bigint): void {
  const now = visibleRange(view.peek(), limits);
  const from = pointedNumber.peek() ?? (now.first + now.end) / 2n;
  const next = from + by > 0n ? from + by : 1n;
  pointedNumber.value = next;
  const far = distance(view.peek(), next);
  if (far < 0 || far >= view.peek().span) panBy(far < 0 ? -0.5 : 0.5);
}
