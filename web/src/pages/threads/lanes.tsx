/** Overview and lanes of one replica, and of the compared replica. */

import { computed, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { cssColor, createPalette, rampColor } from "../../timeline/palette";
import {
  coreAt,
  drawLanes,
  drawOverview,
  createFrame,
  HALF_HEIGHT,
  frameHeight,
  sliceAt,
  MAX_ARROWS,
  OVERVIEW_HEIGHT,
  overviewTimeAt,
  FULL_HEIGHT,
  timeAt,
  type Scene,
} from "../../timeline/timeline";
import { panView, fullView, zoomView } from "../../timeline/view";
import { formatCount, formatInteger } from "../../lib/format";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { isDark, token } from "../../lib/theme";
import type { LoadedTrace } from "../../timeline/load";
import { lastStartedSlice } from "../../timeline/sums";
import { createLine, formatMicroseconds } from "./model/log";
import { countUpTo, coreOf, ancestorsOf, NONE } from "../../timeline/model";
import { computeSummary } from "./model/statistics";
import { childrenOf } from "../../timeline/tree";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import {
  cursorTime,
  loaded,
  markRange,
  colorMode,
  otherLoaded,
  selectThread,
  selectedThread,
  playhead,
  isPlaying,
  markedRange,
  setView,
  selectedSlice,
  state,
  endTime,
  view,
} from "./model/state";

const lanePalette = computed(() => createPalette(colorMode.value, isDark.value, loaded.value?.index.maxDepth));
/** Height for the lanes; two pictures share the screen. */
const laneAreaHeight = computed(() => (otherLoaded.value ? HALF_HEIGHT : FULL_HEIGHT));
const lineColors = computed(() => {
  void isDark.value;
  return {
    ink: token("ink"),
    secondary: token("ink-soft"),
    line: token("line-strong"),
    accent: token("accent"),
    background: token("bg"),
    halo: token("halo"),
  };
});

/** Ancestors and children of the selected thread, unless there are too many. */
const selectedFamily = computed(() => {
  const opened = loaded.value;
  if (!opened || selectedThread.value === NONE) return [];
  return [
    ...ancestorsOf(opened.trace.threads, selectedThread.value),
    ...childrenOf(opened.tree, selectedThread.value),
  ].filter((each) => each !== selectedThread.value);
});

function createScene(opened: LoadedTrace, first: boolean): Scene {
  return {
    loaded: opened,
    view: view.value,
    mode: colorMode.value,
    palette: lanePalette.value,
    colors: lineColors.value,
    range: markedRange.value,
    playhead: playhead.value,
    cursor: cursorTime.value,
    hasArrows: state.steals.value,
    criticalPath: state.critical.value ? opened.critical.path : [],
    selectedThread: first ? selectedThread.value : NONE,
    family: first ? selectedFamily.value : [],
    height: laneAreaHeight.value,
    scale: devicePixelRatio || 1,
  };
}

/** Height in pixels of the scheduler's name above lanes in a file. */
const NAME_HEIGHT = 20;

/** Return the height in pixels of lanes with their name, and of the overview above the first lanes. */
export function pictureHeight({ trace }: LoadedTrace, first: boolean): number {
  return NAME_HEIGHT + frameHeight(createFrame(1, trace.cores, laneAreaHeight.peek())) + (first ? OVERVIEW_HEIGHT : 0);
}

/** Draw the lanes of a replica with their name for a file. */
export function drawWithName(
  context: CanvasRenderingContext2D,
  width: number,
  opened: LoadedTrace,
  first: boolean,
): void {
  const scene = { ...createScene(opened, first), cursor: undefined, scale: 2 };
  context.save();
  if (first) {
    drawOverview(context, width, scene);
    context.translate(0, OVERVIEW_HEIGHT);
  }
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = lineColors.peek().ink;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(
    `${opened.trace.scheduler.replaceAll("_", " ")}, ${formatMicroseconds(opened.trace.until)}`,
    0,
    NAME_HEIGHT / 2,
  );
  context.translate(0, NAME_HEIGHT);
  drawLanes(context, width, scene);
  context.restore();
}

// -- overview ---------------------------------------------------------------------------------------------------------

export function Overview({ trace: from }: { trace: ReadonlySignal<LoadedTrace | undefined> }) {
  const canvas = useCanvas(
    (context, width) => from.value && drawOverview(context, width, createScene(from.value, true)),
  );
  const held = useRef<number | undefined>(undefined);
  const opened = from.value;
  if (!opened) return null;
  const { trace, index } = opened;
  const time = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return overviewTimeAt(box.width, trace, event.clientX - box.left);
  };
  const move = (event: PointerEvent) => {
    if (held.current === undefined) return;
    const now = time(event);
    const [low, high] = [Math.min(held.current, now), Math.max(held.current, now)];
    if (high - low > trace.until / 200) setView({ t0: low, t1: high });
    else center(now);
  };
  const center = (at: number) => {
    const wide = view.peek().t1 - view.peek().t0;
    setView({ t0: at - wide / 2, t1: at + wide / 2 });
  };
  const done = () => {
    if (held.current !== undefined) state.commit();
    held.current = undefined;
  };
  const mean = computeSummary(trace, index, 0, trace.until).busyCores;
  const summary =
    `Busy cores over the whole trace of ${formatMicroseconds(trace.until)}: ${mean.toFixed(2)} of ${trace.cores} ` +
    `on average. The lanes show ${formatMicroseconds(Math.max(0, view.value.t0))} to ` +
    `${formatMicroseconds(Math.min(trace.until, view.value.t1))}.`;
  const twin = () => ({
    head: ["from", "to", "busy cores"],
    rows: Array.from({ length: 50 }, (_, position) => {
      const [t0, t1] = [(position * trace.until) / 50, ((position + 1) * trace.until) / 50];
      return [
        formatMicroseconds(t0),
        formatMicroseconds(t1),
        computeSummary(trace, index, t0, t1).busyCores.toFixed(2),
      ];
    }),
  });
  return (
    <Figure summary={summary} getTable={twin}>
      <div
        class="overview"
        style={{ height: `${OVERVIEW_HEIGHT}px` }}
        onPointerMove={move}
        onPointerUp={done}
        onPointerCancel={done}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          held.current = time(event);
          move(event);
        }}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
    </Figure>
  );
}

// -- lanes ------------------------------------------------------------------------------------------------------------

/** Return the center for zooming without a pointer. */
function zoomCenter(): number {
  return cursorTime.peek() ?? (view.peek().t0 + view.peek().t1) / 2;
}

export function zoomBy(factor: number): void {
  setView(zoomView(view.peek(), factor, zoomCenter(), endTime.peek()));
}

export function panBy(share: number): void {
  setView(panView(view.peek(), share, endTime.peek()));
}

/** Select the next or previous slice of the same core, or the simultaneous slice of a neighboring core. */
export function selectNeighbor(along: number, across: number): void {
  const opened = loaded.peek();
  if (!opened) return;
  const { trace, index } = opened;
  const from = selectedSlice.peek();
  const { t0, t1 } = view.peek();
  if (from === NONE) {
    selectSlice(opened, lastStartedSlice(trace, index, 0, (t0 + t1) / 2));
    return;
  }
  const core = coreOf(trace, from) + across;
  if (core < 0 || core >= trace.cores) return;
  const time = trace.start[from] as number;
  const next = across
    ? Math.max(trace.lanes[core] as number, lastStartedSlice(trace, index, core, time))
    : from + along;
  if (next >= (trace.lanes[core] as number) && next < (trace.lanes[core + 1] as number)) selectSlice(opened, next);
}

function selectSlice({ trace }: LoadedTrace, at: number): void {
  if (!(at >= 0 && at < trace.start.length)) return;
  selectedSlice.value = at;
  selectThread(trace.thread[at] as number, at);
  selectedSlice.value = at;
  const [start, end, { t0, t1 }] = [trace.start[at] as number, trace.end[at] as number, view.peek()];
  if (start < t0 || end > t1) setView({ t0: (start + end) / 2 - (t1 - t0) / 2, t1: (start + end) / 2 + (t1 - t0) / 2 });
}

const ARROW_SHORTCUTS: Shortcuts = {
  Left: { text: "previous slice on the core", run: () => selectNeighbor(-1, 0) },
  Right: { text: "next slice on the core", run: () => selectNeighbor(1, 0) },
  Up: { text: "slice on the core above", run: () => selectNeighbor(0, -1) },
  Down: { text: "slice on the core below", run: () => selectNeighbor(0, 1) },
};

/** Scroll to the details, which are below the picture on phones. */
function showDetails(): void {
  document.querySelector(".details")?.scrollIntoView({ block: "nearest" });
}

type PointerDrag = { kind: "pan" | "range"; x: number; time: number; hasMoved: boolean };

/** Handle pointer and wheel of a picture, including pinch gestures. */
function usePointer(opened: LoadedTrace | undefined, first: boolean) {
  const grip = useRef<PointerDrag | undefined>(undefined);
  const fingers = useRef(new Map<number, number>());
  const element = useRef<HTMLDivElement>(null);
  const pointAt = (event: { clientX: number; clientY: number }) => {
    const box = (element.current as HTMLElement).getBoundingClientRect();
    const frame = createFrame(box.width, opened?.trace.cores ?? 1, laneAreaHeight.peek());
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return { frame, x, y, time: timeAt(frame, view.peek(), x) };
  };
  useEffect(() => {
    // Preact's wheel listeners are passive in some browsers and cannot prevent scrolling.
    const wheel = (event: WheelEvent) => {
      if (!opened || (!event.ctrlKey && !event.metaKey && !event.shiftKey && event.deltaY === 0 && event.deltaX === 0))
        return;
      event.preventDefault();
      const scale = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        return panBy(((event.deltaX || event.deltaY) * scale) / 1000);
      setView(
        zoomView(
          view.peek(),
          1.0015 ** (event.deltaY * scale * (event.ctrlKey ? 4 : 1)),
          pointAt(event).time,
          endTime.peek(),
        ),
      );
    };
    const at = element.current;
    at?.addEventListener("wheel", wheel, { passive: false });
    return () => at?.removeEventListener("wheel", wheel);
  });
  const pinch = (event: PointerEvent) => {
    const [one, two] = [...fingers.current.values()] as [number, number];
    const before = Math.abs(one - two);
    const center = pointAt({ clientX: (one + two) / 2, clientY: 0 }).time;
    fingers.current.set(event.pointerId, event.clientX);
    const [left, right] = [...fingers.current.values()] as [number, number];
    if (before > 10)
      setView(zoomView(view.peek(), before / Math.max(10, Math.abs(left - right)), center, endTime.peek()));
  };
  const down = (event: PointerEvent) => {
    if (!opened || event.button > 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    fingers.current.set(event.pointerId, event.clientX);
    const { x, time } = pointAt(event);
    grip.current = { kind: event.shiftKey ? "range" : "pan", x, time, hasMoved: false };
  };
  const move = (event: PointerEvent) => {
    if (!opened) return;
    const { frame, x, time } = pointAt(event);
    cursorTime.value = x >= frame.left ? time : undefined;
    const held = grip.current;
    if (fingers.current.size === 2 && fingers.current.has(event.pointerId)) {
      if (held) held.hasMoved = true;
      return pinch(event);
    }
    if (!held) return;
    if (Math.abs(x - held.x) > 3) held.hasMoved = true;
    if (!held.hasMoved) return;
    if (held.kind === "range") markRange({ t0: Math.min(held.time, time), t1: Math.max(held.time, time) });
    else setView(panView(view.peek(), (held.time - time) / (view.peek().t1 - view.peek().t0), endTime.peek()));
  };
  const up = (event: PointerEvent) => {
    fingers.current.delete(event.pointerId);
    const held = grip.current;
    grip.current = undefined;
    if (!held || !opened || event.type === "pointercancel") return;
    if (held.hasMoved) return state.commit();
    const { frame, x, y } = pointAt(event);
    const at = sliceAt(opened, frame, view.peek(), x, y);
    if (first) selectThread(at === NONE ? NONE : (opened.trace.thread[at] as number), at);
    if (at === NONE && !event.shiftKey && first) markRange(undefined);
    state.commit();
    if (event.pointerType === "touch" && at !== NONE) requestAnimationFrame(showDetails);
  };
  const leave = () => {
    if (!grip.current) cursorTime.value = undefined;
  };
  return {
    element,
    on: { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up, onPointerLeave: leave },
    place: pointAt,
  };
}

export function Lanes({
  trace: from,
  isFirst: first,
}: {
  trace: ReadonlySignal<LoadedTrace | undefined>;
  isFirst: boolean;
}) {
  const canvas = useCanvas((context, width) => from.value && drawLanes(context, width, createScene(from.value, first)));
  const opened = from.value;
  const hands = usePointer(opened, first);
  const under = useSignal(NONE);
  const stop = useRef(() => {});
  if (!opened) return null;
  const { trace } = opened;
  const { t0, t1 } = view.value;
  const seen = `${formatMicroseconds(Math.max(0, t0))} to ${formatMicroseconds(Math.min(trace.until, t1))}`;
  const summary =
    `Lanes of ${trace.cores} cores, ${trace.scheduler.replaceAll("_", " ")}, replica ` +
    `${trace.replica}, ${seen}: ${describeWindow(opened, t0, t1)}`;
  const hover = (event: PointerEvent) => {
    hands.on.onPointerMove(event);
    const { frame, x, y } = hands.place(event);
    under.value = coreAt(frame, y) === undefined ? NONE : sliceAt(opened, frame, view.peek(), x, y);
  };
  const height = frameHeight(createFrame(globalThis.innerWidth, trace.cores, laneAreaHeight.value));
  return (
    <Figure summary={summary} getTable={() => createTable(opened, t0, t1)}>
      <div
        class="lanes"
        ref={hands.element}
        tabIndex={0}
        role="group"
        aria-label={
          `Lanes, ${trace.scheduler.replaceAll("_", " ")}: arrows go from slice to slice, W and S ` +
          `zoom, A and D pan`
        }
        style={{ height: `${height}px` }}
        {...hands.on}
        onPointerMove={hover}
        onFocus={() => (stop.current = bindShortcuts(ARROW_SHORTCUTS))}
        onBlur={() => stop.current()}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {describeSlice(opened, under.value !== NONE ? under.value : first ? selectedSlice.value : NONE) ??
          (first ? POINTER_HINT : "")}
      </p>
    </Figure>
  );
}

const POINTER_HINT = matchMedia("(pointer: coarse)").matches
  ? "Drag to pan, pinch to zoom, tap a slice for its thread."
  : "Drag to pan, turn the wheel to zoom, drag with Shift to mark a range, click a slice for its thread.";

function describeWindow({ trace, index }: LoadedTrace, t0: number, t1: number): string {
  const { busyCores, slices, steals } = computeSummary(trace, index, Math.max(0, t0), Math.min(trace.until, t1));
  const cores = `${busyCores.toFixed(2)} cores busy on average`;
  return `${formatCount(slices, "slice")}, ${cores}, ${formatCount(steals, "steal")}.`;
}

function describeSlice({ trace }: LoadedTrace, at: number): string | undefined {
  if (at === NONE || at >= trace.start.length) return undefined;
  const { name, path, text, time } = createLine(trace, at);
  return `${formatMicroseconds(time)}: ${name}${path && ` (${path})`} ${text}`;
}

function createTable({ trace, index }: LoadedTrace, t0: number, t1: number) {
  const rows: (string | number)[][] = [];
  for (const at of index.order) {
    if (rows.length > 500) break;
    if ((trace.end[at] as number) < t0 || (trace.start[at] as number) > t1) continue;
    const { name, path, text, time } = createLine(trace, at);
    rows.push([
      formatMicroseconds(time),
      formatMicroseconds((trace.end[at] as number) - time),
      coreOf(trace, at),
      `${name} ${path}`,
      text,
    ]);
  }
  return { head: ["begins", "lasts", "core", "thread", "what"], rows };
}

/** Legend of colors and symbols, and the resolution of the picture. */
export function Legend() {
  const opened = loaded.value;
  if (!opened) return null;
  const { trace, index } = opened;
  const { steals } = trace;
  const { maxDepth: deepest } = index;
  const depths =
    deepest <= 5
      ? Array.from({ length: deepest + 1 }, (_, depth) => depth)
      : [0, 1, ...[1, 2, 3].map((part) => Math.round(1 + (part * (deepest - 1)) / 4)), deepest];
  const scales = {
    depth: depths.map((depth) => [depth / Math.max(1, deepest), depth === 0 ? "root" : `depth ${depth}`] as const),
    stolen: [
      [0, "run where it was spawned"],
      [1, "stolen"],
    ] as const,
    wait: [
      [0, "no wait"],
      [0.5, "1 ms"],
      [1, "1 s"],
    ] as const,
  }[colorMode.value];
  const many = countUpTo(steals.time, view.value.t1) - countUpTo(steals.time, view.value.t0);
  const perPixel = ((view.value.t1 - view.value.t0) / 1000 / trace.until) * (trace.start.length / trace.cores);
  return (
    <ul class="legend" aria-label="Legend">
      {scales.map(([level, text]) => (
        <li key={text}>
          <i class="swatch" style={{ backgroundColor: cssColor(rampColor(lanePalette.value, level)) }} />
          {text}
        </li>
      ))}
      {trace.kind.includes(3) && (
        <li>
          <i class="swatch hatched" style={{ backgroundColor: cssColor(lanePalette.value.steal) }} />
          idle (stealing)
        </li>
      )}
      {trace.kind.includes(1) && (
        <li>
          <i class="swatch hatched down" style={{ backgroundColor: cssColor(lanePalette.value.blocked) }} />
          blocked in join
        </li>
      )}
      {steals.time.length > 0 && state.steals.value && (
        <li>
          {many > MAX_ARROWS
            ? `${formatInteger(many)} steals as ticks; arrows from ${MAX_ARROWS} on down`
            : "arrow: a steal, from victim to thief"}
        </li>
      )}
      {state.critical.value && (
        <li>
          <i class="swatch framed" />
          critical path
        </li>
      )}
      {perPixel > 1 && (
        <li>about {perPixel.toFixed(perPixel < 10 ? 1 : 0)} slices per pixel: colors show shares of time</li>
      )}
    </ul>
  );
}

export function fitView(): void {
  if (markedRange.peek()) setView(markedRange.peek() as { t0: number; t1: number });
  else setView(fullView(endTime.peek()));
  state.commit();
}

/** Scroll the view when the playhead leaves it. */
export function useFollowPlayhead(): void {
  useEffect(
    () =>
      playhead.subscribe((at) => {
        const { t0, t1 } = view.peek();
        if (at !== undefined && isPlaying.peek() && (at < t0 || at > t1)) setView({ t0: at, t1: at + (t1 - t0) });
      }),
    [],
  );
}
