/** The graph of a workflow from left to right, which users can zoom and move. */

import type { Action, Workflow } from "../../lib/api";
import { useComputed, useSignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import {
  drawGraph,
  edgeStep,
  type BoxContent,
  type Drawing,
  type StateStyle,
  type StateSymbol,
} from "../../graph/draw";
import {
  findNextBox,
  boxAt,
  fitView,
  mapRect,
  viewAtMapPoint,
  initialView,
  panView,
  READABLE_SCALE,
  revealBox,
  zoomView,
  type View,
} from "../../graph/view";
import { formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { clusterTime } from "../../lib/live";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { state } from "./model/state";
import type { Drawn, WorkflowView } from "./model/workflow-view";
import { commonName, tallied, inWords, secondsOf, waitsFor, type Structure } from "./model/workflows";

const HANDS = matchMedia("(hover: none)").matches
  ? "Drag to move, pinch to zoom, tap an action to open it."
  : "Drag to move, turn the wheel to zoom, click an action to open it.";

const LOOKS: Record<string, readonly [StateSymbol, string]> = {
  waiting: ["dashed", "line-strong"],
  approval: ["triangle", "warn"],
  blocked: ["dashed", "line-strong"],
  queued: ["hollow", "ink-soft"],
  running: ["half", "accent"],
  finishing: ["half", "accent"],
  paused: ["pause", "warn"],
  cancelling: ["bar", "warn"],
  done: ["solid", "good"],
  failed: ["cross", "bad"],
  skipped: ["chevrons", "ink-soft"],
  cancelled: ["bar", "ink-soft"],
};

function lookOf(name: string): StateStyle {
  const [sign, color] = LOOKS[name] ?? ["hollow", "ink-soft"];
  return { symbol: sign, color: token(color) };
}

/** Select an action; an empty ID clears the selection. */
export function chooseAction(id: string): void {
  state.action.value = id;
  state.commit();
}

interface Props {
  view: WorkflowView;
  shown: Workflow;
  structure: Structure;
  drawn: Drawn;
}

export function GraphView({ view: workflow, shown, structure, drawn }: Props) {
  const at = useSignal<View | undefined>(undefined);
  const cursor = useSignal<number | undefined>(undefined);
  const place = useRef<HTMLDivElement>(null);
  const size = () => ({ width: place.current?.clientWidth ?? 0, height: place.current?.clientHeight ?? 0 });
  const { layout, boxes } = drawn;
  const looks = useComputed(() => looksOf(workflow));
  const canvas = useCanvas((context, width, height) => {
    const now = workflow.drawn.value;
    const seen = at.value;
    if (now && seen && looks.value.length === now.boxes.members.length)
      drawGraph(context, drawingOf(workflow, now, looks.value, cursor.value, moving.value), seen, { width, height });
  });
  const moving = useSignal(false);
  const see = useFrames((next: View) => (at.value = next), moving);
  const fit = () => see(fitView(layout, size()));
  const show = (box: number) => see(revealBox(readable(see.latest() ?? fitView(layout, size())), layout, box, size()));
  // Reset the view when the graph appears, is folded or grows.
  useLayoutEffect(() => {
    at.value = initialView(layout, boxes.boxOfVertex[ofInterest(shown) ?? -1], size());
    see.forget();
    cursor.value = undefined;
  }, [layout]);
  useHands(place, see, () => at.peek(), layout);
  const boxOfAction = (id: string) => boxes.boxOfVertex[structure.place.get(id) ?? -1];
  // Show the action that the URL or the list selects.
  useEffect(() => {
    const box = boxOfAction(state.action.value);
    if (box !== undefined && box !== cursor.peek()) show(box);
  }, [state.action.value, layout]);
  const zoom = (by: number) => {
    const { width, height } = size();
    const now = see.latest() ?? at.peek();
    if (now) see(zoomView(now, by, width / 2, height / 2));
  };
  const choose = (box: number | undefined) => {
    cursor.value = box;
    const vertex = box === undefined ? undefined : mostUrgent(boxes.members[box] ?? [], shown);
    chooseAction(shown.actions[vertex ?? -1]?.action_id ?? "");
  };
  useLayoutEffect(
    () =>
      bindShortcuts({
        F: { text: "show the whole graph", run: fit },
        "+": { text: "zoom in", run: () => zoom(1.4) },
        "=": { text: "zoom in", run: () => zoom(1.4) },
        "-": { text: "zoom out", run: () => zoom(1 / 1.4) },
        U: {
          text: "focus the graph; arrow keys follow its edges, Enter opens an action",
          run: () => place.current?.focus(),
        },
      }),
    [layout],
  );
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = cursor.peek() ?? layout.rows[0]?.[0];
    if (here === undefined) return;
    if (event.key === "Enter" || event.key === " ") choose(here);
    else {
      const near = { parents: boxes.graph.parents[here] ?? [], children: boxes.graph.children[here] ?? [] };
      const next =
        cursor.peek() === undefined && event.key.startsWith("Arrow")
          ? here
          : findNextBox(layout, near, here, event.key);
      if (next === undefined) return;
      cursor.value = next;
      show(next);
    }
    event.preventDefault();
  };
  const words = cursor.value === undefined ? "" : describe(boxes.members[cursor.value] ?? [], shown);
  const summary = `Graph of ${shown.name}: ${inWords(shown.counts, shown.total)}`;
  const find = (event: MouseEvent) => {
    const box = place.current?.getBoundingClientRect();
    const now = at.peek();
    return box && now ? boxAt(layout, now, event.clientX - box.left, event.clientY - box.top) : undefined;
  };
  return (
    <Figure
      summary={summary}
      getTable={() => ({
        head: ["action", "type", "state", "waits for"],
        rows: shown.actions.map((each) => [each.action_id, each.action_type, each.state, waitsFor(each).join(", ")]),
      })}
    >
      <div
        ref={place}
        class="graph"
        role="slider"
        tabIndex={0}
        aria-label={`Actions of ${shown.name}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, boxes.members.length - 1)}
        aria-valuenow={cursor.value ?? 0}
        aria-valuetext={words || summary}
        style={{ height: `${tall(layout.height)}px` }}
        onKeyDown={onKey}
        onMouseMove={(event) => (cursor.value = find(event) ?? cursor.peek())}
        onClick={(event) => !see.moved() && choose(find(event))}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <div class="graph-zoom">
        <Button aria-label="Zoom in" onClick={() => zoom(1.4)}>
          +
        </Button>
        <Button aria-label="Zoom out" onClick={() => zoom(1 / 1.4)}>
          &minus;
        </Button>
        <Button onClick={fit}>All</Button>
      </div>
      <p class="small readout">
        {words || (
          <span class="soft">
            {HANDS} <Folding boxes={boxes.members} />
            {edgeStep(layout.edges.length) > 1 && ` One of ${edgeStep(layout.edges.length)} edges is drawn.`}
          </span>
        )}
      </p>
    </Figure>
  );
}

function Folding({ boxes }: { boxes: readonly (readonly number[])[] }) {
  const folded = boxes.filter((each) => each.length > 1);
  if (!folded.length) return null;
  const held = folded.reduce((sum, each) => sum + each.length, 0);
  return (
    <>
      {formatInteger(held)} actions that stand alike share {formatInteger(folded.length)} box
      {folded.length === 1 ? "" : "es"}.
    </>
  );
}

/** Return a view at a scale at which names are readable. */
function readable(view: View): View {
  return view.scale >= READABLE_SCALE ? view : { ...view, scale: READABLE_SCALE };
}

/** Return the height in pixels for a drawing, limited by its size and the window. */
function tall(drawing: number): number {
  return Math.max(220, Math.min(drawing + 96, Math.round(innerHeight * 0.62)));
}

/** Return the most urgent action that is unfinished or failed. */
function ofInterest({ actions }: Workflow): number | undefined {
  for (const name of ["failed", "approval", "running", "queued"]) {
    const vertex = actions.findIndex((action) => action.state === name);
    if (vertex >= 0) return vertex;
  }
  return undefined;
}

/** Return the most urgent of the actions in a box. */
function mostUrgent(members: readonly number[], shown: Workflow): number {
  const [first] = tallied(members.map((vertex) => shown.actions[vertex]?.state ?? ""))[0] ?? [];
  return members.find((vertex) => shown.actions[vertex]?.state === first) ?? members[0] ?? 0;
}

/** Describe a box for screen readers and for the line below the picture. */
function describe(members: readonly number[], shown: Workflow): string {
  const actions = members.flatMap((vertex) => shown.actions[vertex] ?? []);
  const [first] = actions;
  if (!first) return "";
  if (actions.length > 1) {
    const counts = tallied(actions.map((action) => action.state));
    const states = counts.map(([name, count]) => `${formatInteger(count)} ${name}`).join(", ");
    return `${formatInteger(actions.length)} alike, ${namesOf(actions)}, ${first.action_type}: ${states}`;
  }
  const names = waitsFor(first);
  const waits = names.length > 4 ? `${formatInteger(names.length)} actions` : names.join(", ");
  return [
    `${first.action_id}, ${first.action_type}: ${first.state}`,
    first.progress !== null && !first.ended && formatPercent(first.progress),
    formatSeconds(secondsOf(first, clusterTime(Date.now()))),
    waits && `after ${waits}`,
    first.error,
  ]
    .filter(Boolean)
    .join(", ");
}

// -- appearance -------------------------------------------------------------------------------------------------------

function looksOf({ answer, drawn }: WorkflowView): BoxContent[] {
  const [shown, now] = [answer.value, drawn.value];
  if (!shown || !now || shown.actions.length !== now.boxes.boxOfVertex.length) return [];
  return now.boxes.members.map((members) => boxLook(members.flatMap((vertex) => shown.actions[vertex] ?? [])));
}

function boxLook(actions: readonly Action[]): BoxContent {
  const counts = tallied(actions.map((action) => action.state));
  const look = lookOf(counts[0]?.[0] ?? "");
  const wanted = state.states.value;
  const faint = wanted !== "" && !actions.some((action) => action.state === wanted);
  const [first] = actions;
  if (!first) return { title: "", note: "", style: look, shares: [], isGroup: false, isFaint: faint };
  if (actions.length === 1)
    return {
      title: first.action_id,
      note: noteOf(first),
      style: look,
      shares: progressOf(first),
      isGroup: false,
      isFaint: faint,
    };
  return {
    title: `${actions.length} × ${namesOf(actions)}`,
    note: counts.map(([name, count]) => `${count} ${name}`).join(", "),
    style: look,
    shares: counts.toReversed().map(([name, count]) => [lookOf(name).color, count / actions.length]),
    isGroup: true,
    isFaint: faint,
  };
}

function namesOf(actions: readonly Action[]): string {
  return commonName(actions.map((action) => action.action_id));
}

function noteOf(action: Action): string {
  const { action_type: type, ended, items, progress, state: name } = action;
  const took = ended && name === "done" ? formatSeconds(secondsOf(action, 0)) : "";
  const far =
    !ended &&
    (items ? `${formatInteger(items.done)} of ${formatInteger(items.total)}` : progress ? formatPercent(progress) : "");
  return [type, name === "done" ? "" : name, far, took].filter(Boolean).join(", ");
}

function progressOf({ progress, ended, state: name }: Action): [string, number][] {
  return progress && !ended ? [[lookOf(name).color, progress]] : [];
}

function drawingOf(
  { lit, structure }: WorkflowView,
  { layout, boxes, loose }: Drawn,
  looks: readonly BoxContent[],
  cursor: number | undefined,
  moving: boolean,
): Drawing {
  const way = lit.value?.vertices.map((vertex) => boxes.boxOfVertex[vertex] as number) ?? [];
  const steps = new Set(way.slice(1).map((box, place) => `${way[place]} ${box}`));
  const chosen = boxes.boxOfVertex[structure.value?.place.get(state.action.value) ?? -1];
  return {
    layout,
    boxes: looks,
    colors: {
      ink: token("ink"),
      secondary: token("ink-soft"),
      line: token("line-strong"),
      surface: token("raised"),
      highlight: token(lit.value?.text === "failure" ? "bad" : "accent"),
      accent: token("accent"),
      sans: "system-ui, sans-serif",
      mono: "ui-monospace, monospace",
    },
    isAnyOutcomeEdge: (from: number, to: number) => loose.has(`${from} ${to}`),
    pathBoxes: new Set(way),
    isPathEdge: (from: number, to: number) => steps.has(`${from} ${to}`),
    isMoving: moving,
    selectedBox: chosen,
    focusedBox: cursor,
  };
}

// -- interaction ------------------------------------------------------------------------------------------------------

interface Frames {
  (next: View): void;
  /** Return the last requested view, which may not be drawn yet. */
  latest(): View | undefined;
  forget(): void;
  /** Return True if the picture was moved since the pointer was pressed. */
  moved(): boolean;
  drag(moved: boolean): void;
}

/** Time in milliseconds without a new view after which the picture is at rest. */
const REST_MS = 140;

/** Pass on only the last view of each frame. */
function useFrames(pass: (view: View) => void, moving: Signal<boolean>): Frames {
  return useMemo(() => {
    let [frame, moved, rest] = [0, false, 0];
    let latest: View | undefined;
    const see = (next: View) => {
      latest = next;
      moving.value = true;
      clearTimeout(rest);
      rest = setTimeout(() => (moving.value = false), REST_MS) as unknown as number;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (latest) pass(latest);
      });
    };
    return Object.assign(see, {
      latest: () => latest,
      forget: () => (latest = undefined),
      moved: () => moved,
      drag: (now: boolean) => (moved = now),
    });
  }, []);
}

/** Handle pointer and wheel, including pinch gestures. */
function useHands(
  place: preact.RefObject<HTMLDivElement | null>,
  see: Frames,
  drawnNow: () => View | undefined,
  layout: Drawn["layout"],
): void {
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const fingers = new Map<number, { x: number; y: number }>();
    const now = () => see.latest() ?? drawnNow();
    const at = (event: { clientX: number; clientY: number }) => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const room = () => ({ width: element.clientWidth, height: element.clientHeight });
    const wheel = (event: WheelEvent) => {
      const view = now();
      if (!view) return;
      event.preventDefault();
      const scale = event.deltaMode === 1 ? 30 : 1;
      const { x, y } = at(event);
      if (event.shiftKey) see(panView(view, -(event.deltaY || event.deltaX) * scale, 0, layout, room()));
      else see(zoomView(view, 1.0018 ** (-event.deltaY * scale * (event.ctrlKey ? 4 : 1)), x, y));
    };
    /** Move the view to a point of the map; return true if the point is on the map. */
    const jump = (x: number, y: number) => {
      const view = now();
      const map = view && mapRect(layout, view, room());
      const next = map && viewAtMapPoint(view, map, x, y, room());
      if (next) see(next);
      return next !== undefined;
    };
    const down = (event: PointerEvent) => {
      if (event.button > 0) return;
      const here = at(event);
      see.drag(jump(here.x, here.y));
      if (!see.moved()) fingers.set(event.pointerId, here);
    };
    const move = (event: PointerEvent) => {
      const before = fingers.get(event.pointerId);
      const view = now();
      if (!before || !view) return;
      const here = at(event);
      if (!see.moved() && Math.hypot(here.x - before.x, here.y - before.y) < 4) return;
      if (!see.moved()) element.setPointerCapture(event.pointerId);
      see.drag(true);
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      fingers.set(event.pointerId, here);
      if (!other) return see(panView(view, here.x - before.x, here.y - before.y, layout, room()));
      const apart = (one: { x: number; y: number }) => Math.max(10, Math.hypot(one.x - other.x, one.y - other.y));
      see(zoomView(view, apart(here) / apart(before), (here.x + other.x) / 2, (here.y + other.y) / 2));
    };
    const up = (event: PointerEvent) => void fingers.delete(event.pointerId);
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("pointerdown", down);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", up);
    return () => {
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("pointerdown", down);
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", up);
    };
  }, [layout]);
}
