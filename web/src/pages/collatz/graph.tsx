/** Chart of steps over n: counts if numbers are narrower than pixels, otherwise single points. */

import { effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { back, type Exact } from "./model/layers";
import { bitLength } from "./model/number";
import { chunks, distance, moved, panned, seen, zoomed, type Range } from "./model/view";
import type { Sample } from "./model/sample";
import { walk } from "./model/walk";
import { createPainter } from "../../density/density";
import type { Painter } from "../../density/painter";
import { formatCompact, formatInteger } from "../../lib/format";
import { isDark, isTouchScreen } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Figure, isTableMode } from "../../ui/figure";
import { lazy } from "../../ui/lazy";
import type { Picture } from "../../ui/picture";
import { drawAxes, drawOver, EDGE, type Ring } from "./model/axes";
import { broken, densitiesOf, EXACT_MOST, exactOf, isExact, learnt, need, sampleOf, samplesOf } from "./model/data";
import { Counting, CountThese } from "./count";
import { Legend } from "./legend";
import { records } from "./model/run";
import { useSaved } from "./model/save";
import { scene, type Scene } from "./model/scene";
import { choose, limits, look, metric, pointed, range, select, selection, state, view } from "./model/state";

const Coverage = lazy(() => import("./coverage").then((part) => part.Coverage), 2);

/** The displayed scene; undefined before the first picture. */
export const drawn = signal<Scene | undefined>(undefined);
/** How the scene was drawn, and the drawing time. */
const how = signal<{ kind: string; software: boolean; ms: number }>({ kind: "", software: false, ms: 0 });
/** The selection while the pointer draws it. */
const brushing = signal<Range | undefined>(undefined);

interface Parts {
  data: HTMLCanvasElement;
  under: HTMLCanvasElement;
  over: HTMLCanvasElement;
}

let parts: Parts | undefined;
let brush: Painter | undefined;

function ringsOf(): Ring[] {
  const { delay, path } = records.value;
  const steps = (n: bigint) => walk(n).delay;
  const inView = seen(view.value, limits);
  const near = ({ n }: { n: bigint }) => n >= inView.first && n < inView.end;
  return [
    ...path.filter(near).map(({ n }) => ({ n, steps: steps(n), kind: "path" as const })),
    ...delay.filter(near).map(({ n, value }) => ({ n, steps: Number(value), kind: "delay" as const })),
  ];
}

function sized(
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
const FEW = BigInt(2 * EXACT_MOST);

/** Return the exact chunks to draw: most of the view or none; on a log axis also the start of a wide view. */
function exactIn(now: Range): Exact[] {
  const wide = now.end - now.first > FEW;
  if (wide && !state.log.value) return [];
  const part = wide ? { first: now.first, end: now.first + FEW } : now;
  const known = exactOf(part);
  return wide || 2 * known.length >= chunks(part).length ? known : [];
}

/** Draw the data. The WebGL canvas keeps its content only until the current task ends. */
function paint(): void {
  if (!parts || !brush) return;
  const box = parts.under.parentElement as HTMLElement;
  const scale = devicePixelRatio || 1;
  const [width, height] = [box.clientWidth - EDGE.left - EDGE.right, box.clientHeight - EDGE.top - EDGE.bottom];
  if (width < 20 || height < 20) return;
  const began = performance.now();
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (parts.data.width !== wide || parts.data.height !== high) Object.assign(parts.data, { width: wide, height: high });
  learnt.value;
  const now = seen(view.value, limits);
  const picture = scene(
    {
      view: view.value,
      log: state.log.value,
      metric: metric.value,
      modulus: Math.max(2, Math.min(8, state.mod.value)),
      dark: isDark.value,
      width: wide,
      height: high,
      scale,
      mostPoints: brush.maxPoints,
    },
    {
      exact: exactIn(now),
      whole: isExact(now),
      densities: densitiesOf(now),
      samples: samplesOf(now),
    },
  );
  if (picture.points) brush.drawPoints(picture.points, picture.look);
  else if (picture.grid) brush.drawGrid(picture.grid, picture.look);
  else brush.clear();
  drawn.value = picture;
  how.value = { kind: brush.kind, software: brush.isSoftware, ms: performance.now() - began };
}

/** Draw the axes below the data and the marks above; only the marks follow the pointer. */
function overlay(): void {
  const picture = drawn.value;
  if (!parts || !picture) return;
  const { under, over } = parts;
  const box = under.parentElement as HTMLElement;
  const scale = devicePixelRatio || 1;
  const [width, height] = [box.clientWidth - EDGE.left - EDGE.right, box.clientHeight - EDGE.top - EDGE.bottom];
  const below = sized(under, box.clientWidth, box.clientHeight, scale);
  if (below) drawAxes(below, picture, width, height);
  const above = sized(over, box.clientWidth, box.clientHeight, scale);
  const at = pointed.value;
  const point = at !== undefined && at > 0n ? { n: at, steps: walk(at).delay } : undefined;
  if (above)
    drawOver(
      above,
      picture,
      { rings: ringsOf(), pointed: point, brush: brushing.value ?? selection.value },
      width,
      height,
    );
}

/** Draw the picture with its axes on one canvas, because WebGL keeps no content. */
function composed(): Picture | undefined {
  if (!parts) return undefined;
  paint();
  overlay();
  const { under, data, over } = parts;
  const scale = devicePixelRatio || 1;
  const canvas = Object.assign(document.createElement("canvas"), { width: under.width, height: under.height });
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  context.drawImage(under, 0, 0);
  context.drawImage(data, EDGE.left * scale, EDGE.top * scale);
  context.drawImage(over, 0, 0);
  const { clientWidth: width, clientHeight: height } = under;
  return {
    title: heading(),
    lines: [summaryText()],
    width,
    height,
    draw: (to) => to.drawImage(canvas, 0, 0, width, height),
  };
}

/** Compute missing numbers in this page. */
function gather(): () => void {
  return effect(() => need(seen(view.value, limits), state.log.value));
}

// -- actions --------------------------------------------------------------------------------------------------------

export function zoom(factor: number, place = 0.5): void {
  look(zoomed(view.peek(), factor, place, limits));
}

export function pan(share: number): void {
  look(panned(view.peek(), share, limits));
}

/** Select the visible range, or clear the selection if it is already selected. */
export function markSeen(): void {
  select(selection.peek() ? undefined : seen(view.peek(), limits));
}

/** Return the pointer's position as a fraction of the width and as a number. */
function placeOfPointer(event: MouseEvent): { share: number; n: bigint } {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const width = box.width - EDGE.left - EDGE.right;
  const share = Math.min(1, Math.max(0, (event.clientX - box.left - EDGE.left) / width));
  const frame = drawn.peek()?.frame ?? { view: view.peek(), log: false, low: 0, high: 1 };
  const far = back(frame, 1)(Math.min(share, 1 - 1e-9));
  return { share, n: moved(frame.view, far).base };
}

/** Return the drawn number nearest to the pointer. */
function nearest(event: MouseEvent): bigint | undefined {
  const picture = drawn.peek();
  const { n } = placeOfPointer(event);
  if (n < 1n) return undefined;
  if (picture?.source !== "exact") return n;
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const height = box.height - EDGE.top - EDGE.bottom;
  const { low, high } = picture.frame;
  const steps = low + (1 - (event.clientY - box.top - EDGE.top) / height) * (high - low);
  return closest(n, steps, Math.ceil(picture.frame.view.span / (box.width - EDGE.left - EDGE.right)) * 3) ?? n;
}

/** Return the number within `reach` of n whose delay is closest to `steps`. */
function closest(n: bigint, steps: number, reach: number): bigint | undefined {
  let best: { n: bigint; off: number } | undefined;
  const from = n > BigInt(reach) ? n - BigInt(reach) : 1n;
  for (const exact of exactOf({ first: from, end: n + BigInt(reach) })) {
    const start = Math.max(0, Number(from - exact.start));
    const end = Math.min(exact.delays.length, Number(n - exact.start) + reach);
    for (let place = start; place < end; place += 1) {
      const off = Math.abs((exact.delays[place] as number) - steps) + Math.abs(Number(exact.start - n) + place) / reach;
      if (!best || off < best.off) best = { n: exact.start + BigInt(place), off };
    }
  }
  return best?.n;
}

interface Drag {
  x: number;
  share: number;
  n: bigint;
  brushing: boolean;
  moved: boolean;
  view: ReturnType<typeof view.peek>;
}

const pointers = new Map<number, number>();

function useHands() {
  const drag = useRef<Drag | undefined>(undefined);
  const pinch = useRef(0);
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const box = event.currentTarget as HTMLElement;
    box.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
    const { share, n } = placeOfPointer(event);
    drag.current = {
      x: event.clientX,
      share,
      n,
      brushing: event.shiftKey || brushMode.peek(),
      moved: false,
      view: view.peek(),
    };
    pinch.current = spread();
  };
  const move = (event: PointerEvent) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event.clientX);
    const at = drag.current;
    if (!at) {
      pointed.value = nearest(event);
      return;
    }
    if (pointers.size > 1) return pinched(event);
    if (Math.abs(event.clientX - at.x) > 3) at.moved = true;
    if (!at.moved) return;
    const { share, n } = placeOfPointer(event);
    if (at.brushing)
      brushing.value =
        n < at.n ? { first: n > 0n ? n : 1n, end: at.n + 1n } : { first: at.n > 0n ? at.n : 1n, end: n + 1n };
    else look(panned(at.view, at.share - share, limits));
  };
  const pinched = (event: PointerEvent) => {
    const now = spread();
    if (pinch.current > 0 && now > 0) zoom(pinch.current / now, placeOfPointer(event).share);
    pinch.current = now;
    if (drag.current) drag.current.moved = true;
  };
  const up = (event: PointerEvent) => {
    pointers.delete(event.pointerId);
    const at = drag.current;
    if (pointers.size) return;
    drag.current = undefined;
    if (!at) return;
    if (at.brushing && brushing.peek()) select(brushing.peek());
    brushing.value = undefined;
    if (at.moved) return state.commit();
    const n = nearest(event);
    if (n !== undefined) choose(n);
  };
  const leave = () => {
    if (!drag.current) pointed.value = undefined;
  };
  return { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up, onPointerLeave: leave };
}

function spread(): number {
  const [one, other] = [...pointers.values()];
  return one === undefined || other === undefined ? 0 : Math.abs(one - other);
}

/** True if dragging selects instead of moving, for devices without a Shift key. */
const brushMode = signal(false);

// -- the component --------------------------------------------------------------------------------------------------

function useScene() {
  const data = useRef<HTMLCanvasElement>(null);
  const under = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!data.current || !under.current || !over.current) return undefined;
    const canvas = data.current;
    parts = { data: canvas, under: under.current, over: over.current };
    brush = createPainter(canvas);
    let frame = 0;
    const again = signal(0);
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        again.value = again.peek() + 1;
      });
    };
    const revive = () => {
      brush = createPainter(canvas);
      soon();
    };
    const lost = (event: Event) => event.preventDefault();
    canvas.addEventListener("webglcontextlost", lost);
    canvas.addEventListener("webglcontextrestored", revive);
    const stopPaint = effect(() => {
      again.value;
      paint();
    });
    const stopOver = effect(overlay);
    const stopGather = gather();
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
      brush?.dispose();
      parts = brush = undefined;
      drawn.value = undefined;
    };
  }, [isTableMode.value]);
  return { data, under, over };
}

/** Return the title of the saved picture. */
function heading(): string {
  const { first, end } = seen(view.value, limits);
  return `Collatz: steps to 1 for n from ${formatInteger(first)} to ${formatInteger(end - 1n)}`;
}

function summaryText(): string {
  const now = seen(view.value, limits);
  const picture = drawn.value;
  const head = `Steps to 1 of ${formatInteger(now.first)} to ${formatInteger(now.end - 1n)}`;
  if (!picture || picture.source === "none") return `${head}: being computed.`;
  const { low, high } = picture.frame;
  const what = {
    points: "every number a point",
    exact: `every number counted, ${formatInteger(picture.lit)} pixels lit`,
    columns: "columns of jobs, single numbers where there are none",
    sample: `${formatInteger(sampleOf(now)?.far.length ?? picture.numbers)} numbers spread over the range`,
    none: "",
  };
  return (
    `${head}, between ${low} and ${high} steps: ${what[picture.source]}. ${records.value.delay.length} delay ` +
    `records are ringed.`
  );
}

/** Return the numbers of a sample, exact within the precision of doubles. */
function sampledTwin({ range, far, delays, bits }: Sample, { first, end }: Range) {
  const rows: string[][] = [];
  for (const [place, off] of far.entries()) {
    const n = range.first + BigInt(off);
    if (n < first || n >= end) continue;
    if (rows.length === 1000) break;
    rows.push([off < 2 ** 53 ? formatInteger(n) : formatCompact(n), String(delays[place]), String(bits[place])]);
  }
  return { head: ["n of the sample", "steps", "bits of the peak"], rows };
}

function twin() {
  const now = seen(view.value, limits);
  const rows: string[][] = [];
  if (isExact(now)) {
    for (const exact of exactOf(now)) {
      for (
        let place = Math.max(0, Number(now.first - exact.start));
        place < exact.delays.length && rows.length < 1000;
        place += 1
      ) {
        const n = exact.start + BigInt(place);
        if (n >= now.end) break;
        rows.push([formatInteger(n), String(exact.delays[place]), String(exact.bits[place])]);
      }
    }
    return { head: ["n", "steps", "bits of the peak"], rows };
  }
  const spread = drawn.peek()?.source === "sample" ? sampleOf(now) : undefined;
  if (spread) return sampledTwin(spread, now);
  const finestOne = densitiesOf(now).at(-1);
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
  const hands = useHands();
  useSaved("graph", composed);
  const wheel = useSignal(0);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    const roll = (event: WheelEvent) => {
      event.preventDefault();
      const { share } = placeOfPointer(event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 1000);
      else zoom(1.0015 ** event.deltaY, share);
      clearTimeout(wheel.peek());
      wheel.value = window.setTimeout(() => state.commit(), 600);
    };
    element?.addEventListener("wheel", roll, { passive: false });
    return () => element?.removeEventListener("wheel", roll);
  }, [isTableMode.value]);
  const summary = summaryText();
  return (
    <Figure summary={summary} getTable={twin} class="graph">
      <div class="picture" ref={place} data-brush={brushMode.value} {...hands}>
        <canvas ref={at.under} class="fill" aria-hidden="true" />
        <canvas
          ref={at.data}
          class="data"
          aria-hidden="true"
          style={{ left: `${EDGE.left}px`, top: `${EDGE.top}px` }}
          data-kind={how.value.kind}
          data-source={drawn.value?.source ?? "none"}
          data-lit={drawn.value?.lit ?? 0}
          data-numbers={drawn.value?.numbers ?? 0}
          data-low={drawn.value?.frame.low}
          data-high={drawn.value?.frame.high}
          data-ms={how.value.ms.toFixed(1)}
        />
        <canvas ref={at.over} class="fill" role="img" aria-label={summary} />
        <Missing />
        <Counting />
      </div>
      <div class="under-picture">
        <Legend scene={drawn.value} />
        <Pointed />
        <span class="grow" />
        <Zoom />
      </div>
      <Coverage />
    </Figure>
  );
}

/** Explains what the picture does not show. */
function Missing() {
  const now = seen(view.value, limits);
  const source = drawn.value?.source;
  if (broken.value) return <p class="missing trouble">The page cannot compute: {broken.value}. Reload it.</p>;
  if (source === "sample")
    return (
      <p class="missing note" role="status">
        {formatInteger(sampleOf(now)?.far.length ?? 0)} of {formatCompact(now.end - now.first)} numbers, spread evenly
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
function Pointed() {
  const n = pointed.value;
  if (n === undefined || n < 1n)
    return (
      <p class="pointed soft small">
        {isTouchScreen ? "Tap a number for its trajectory." : "Point at a number; a click shows its trajectory."}
      </p>
    );
  const { delay, peak } = walk(n);
  return (
    <p class="pointed num small">
      n {formatInteger(n)} · {delay} steps · peak {bitLength(peak) < 90 ? formatInteger(peak) : formatCompact(peak)}
    </p>
  );
}

/** Offers to count the visible numbers if the picture is coarser. */
function Zoom() {
  const full = !state.span.value;
  return (
    <span class="row tools">
      <CountThese picture={drawn.value} />
      <Button aria-pressed={brushMode.value} onClick={() => (brushMode.value = !brushMode.value)}>
        Select
      </Button>
      <Button aria-label="Zoom out" onClick={() => zoom(2)}>
        −
      </Button>
      <Button aria-label="Zoom in" onClick={() => zoom(0.5)}>
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
export function step(by: bigint): void {
  const now = seen(view.peek(), limits);
  const from = pointed.peek() ?? (now.first + now.end) / 2n;
  const next = from + by > 0n ? from + by : 1n;
  pointed.value = next;
  const far = distance(view.peek(), next);
  if (far < 0 || far >= view.peek().span) pan(far < 0 ? -0.5 : 0.5);
}
