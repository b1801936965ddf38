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
import { truncate } from "./model/truncate";
import type { GraphLayout, WorkflowView } from "./model/workflow-view";
import {
  commonName,
  countStates,
  describeCounts,
  actionSeconds,
  allDependencies,
  type Structure,
} from "./model/workflows";

const POINTER_HINT = matchMedia("(hover: none)").matches
  ? "Drag to move, pinch to zoom, tap an action to open it."
  : "Drag to move, turn the wheel to zoom, click an action to open it.";

const STYLES: Record<string, readonly [StateSymbol, string]> = {
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

function stateStyle(name: string): StateStyle {
  const [symbol, color] = STYLES[name] ?? ["hollow", "ink-soft"];
  return { symbol, color: token(color) };
}

/** Select an action; an empty ID clears the selection. */
export function selectAction(id: string): void {
  state.action.value = id;
  state.commit();
}

interface Props {
  view: WorkflowView;
  workflow: Workflow;
  structure: Structure;
  graphLayout: GraphLayout;
}

export function GraphView({ view: workflowView, workflow, structure, graphLayout }: Props) {
  const view = useSignal<View | undefined>(undefined);
  const focusedBox = useSignal<number | undefined>(undefined);
  const container = useRef<HTMLDivElement>(null);
  const size = () => ({ width: container.current?.clientWidth ?? 0, height: container.current?.clientHeight ?? 0 });
  const { layout, boxes } = graphLayout;
  const contents = useComputed(() => createBoxContents(workflowView));
  const canvas = useCanvas((context, width, height) => {
    const currentLayout = workflowView.graphLayout.value;
    const currentView = view.value;
    if (currentLayout && currentView && contents.value.length === currentLayout.boxes.members.length)
      drawGraph(
        context,
        createDrawing(workflowView, currentLayout, contents.value, focusedBox.value, isMoving.value),
        currentView,
        { width, height },
      );
  });
  const isMoving = useSignal(false);
  const setView = useFrames((next: View) => (view.value = next), isMoving);
  const fit = () => setView(fitView(layout, size()));
  const showBox = (box: number) =>
    setView(revealBox(toReadableScale(setView.latest() ?? fitView(layout, size())), layout, box, size()));
  // Reset the view when the graph appears, is folded or grows.
  useLayoutEffect(() => {
    view.value = initialView(layout, boxes.boxOfVertex[mostUrgentUnfinished(workflow) ?? -1], size());
    setView.forget();
    focusedBox.value = undefined;
  }, [layout]);
  usePointer(container, setView, () => view.peek(), layout);
  const boxOfAction = (id: string) => boxes.boxOfVertex[structure.vertexOf.get(id) ?? -1];
  // Show the action that the URL or the list selects.
  useEffect(() => {
    const box = boxOfAction(state.action.value);
    if (box !== undefined && box !== focusedBox.peek()) showBox(box);
  }, [state.action.value, layout]);
  const zoom = (factor: number) => {
    const { width, height } = size();
    const currentLayout = setView.latest() ?? view.peek();
    if (currentLayout) setView(zoomView(currentLayout, factor, width / 2, height / 2));
  };
  const choose = (box: number | undefined) => {
    focusedBox.value = box;
    const vertex = box === undefined ? undefined : mostUrgent(boxes.members[box] ?? [], workflow);
    selectAction(workflow.actions[vertex ?? -1]?.action_id ?? "");
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
          run: () => container.current?.focus(),
        },
      }),
    [layout],
  );
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = focusedBox.peek() ?? layout.rows[0]?.[0];
    if (here === undefined) return;
    if (event.key === "Enter" || event.key === " ") choose(here);
    else {
      const near = { parents: boxes.graph.parents[here] ?? [], children: boxes.graph.children[here] ?? [] };
      const next =
        focusedBox.peek() === undefined && event.key.startsWith("Arrow")
          ? here
          : findNextBox(layout, near, here, event.key);
      if (next === undefined) return;
      focusedBox.value = next;
      showBox(next);
    }
    event.preventDefault();
  };
  const words = focusedBox.value === undefined ? "" : describeBox(boxes.members[focusedBox.value] ?? [], workflow);
  const summary = `Graph of ${workflow.name}: ${describeCounts(workflow.counts, workflow.total)}`;
  const find = (event: MouseEvent) => {
    const box = container.current?.getBoundingClientRect();
    const currentLayout = view.peek();
    return box && currentLayout
      ? boxAt(layout, currentLayout, event.clientX - box.left, event.clientY - box.top)
      : undefined;
  };
  return (
    <Figure
      summary={summary}
      getTable={() => ({
        head: ["action", "type", "state", "waits for"],
        rows: workflow.actions.map((each) => [
          each.action_id,
          each.action_type,
          each.state,
          allDependencies(each).join(", "),
        ]),
      })}
    >
      <div
        ref={container}
        class="graph"
        role="slider"
        tabIndex={0}
        aria-label={`Actions of ${workflow.name}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, boxes.members.length - 1)}
        aria-valuenow={focusedBox.value ?? 0}
        aria-valuetext={words || summary}
        style={{ height: `${viewHeight(layout.height)}px` }}
        onKeyDown={onKey}
        onMouseMove={(event) => (focusedBox.value = find(event) ?? focusedBox.peek())}
        onClick={(event) => !setView.moved() && choose(find(event))}
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
            {POINTER_HINT} <FoldingControls boxes={boxes.members} />
            {edgeStep(layout.edges.length) > 1 && ` One of ${edgeStep(layout.edges.length)} edges is drawn.`}
          </span>
        )}
      </p>
    </Figure>
  );
}

function FoldingControls({ boxes }: { boxes: readonly (readonly number[])[] }) {
  const folded = boxes.filter((each) => each.length > 1);
  if (!folded.length) return null;
  const held = folded.reduce((sum, each) => sum + each.length, 0);
  return (
    <>
      {formatInteger(held)} similar actions share {formatInteger(folded.length)} box
      {folded.length === 1 ? "" : "es"}.
    </>
  );
}

/** Return a view at a scale at which names are readable. */
function toReadableScale(view: View): View {
  return view.scale >= READABLE_SCALE ? view : { ...view, scale: READABLE_SCALE };
}

/** Return the height in pixels for a drawing, limited by its size and the window. */
function viewHeight(drawing: number): number {
  return Math.max(220, Math.min(drawing + 96, Math.round(innerHeight * 0.62)));
}

/** Return the most urgent action that is unfinished or failed. */
function mostUrgentUnfinished({ actions }: Workflow): number | undefined {
  for (const name of ["failed", "approval", "running", "queued"]) {
    const vertex = actions.findIndex((action) => action.state === name);
    if (vertex >= 0) return vertex;
  }
  return undefined;
}

/** Return the most urgent of the actions in a box. */
function mostUrgent(members: readonly number[], workflow: Workflow): number {
  const [first] = countStates(members.map((vertex) => workflow.actions[vertex]?.state ?? ""))[0] ?? [];
  return members.find((vertex) => workflow.actions[vertex]?.state === first) ?? members[0] ?? 0;
}

/** Describe a box for screen readers and for the line below the picture. */
function describeBox(members: readonly number[], workflow: Workflow): string {
  const actions = members.flatMap((vertex) => workflow.actions[vertex] ?? []);
  const [first] = actions;
  if (!first) return "";
  if (actions.length > 1) {
    const counts = countStates(actions.map((action) => action.state));
    const states = counts.map(([name, count]) => `${formatInteger(count)} ${name}`).join(", ");
    return `${formatInteger(actions.length)} similar, ${describeNames(actions)}, ${first.action_type}: ${states}`;
  }
  const names = allDependencies(first);
  const waits = names.length > 4 ? `${formatInteger(names.length)} actions` : names.join(", ");
  return [
    `${first.action_id}, ${first.action_type}: ${first.state}`,
    first.progress !== null && !first.ended && formatPercent(first.progress),
    formatSeconds(actionSeconds(first, clusterTime(Date.now()))),
    waits && `after ${waits}`,
    first.error,
  ]
    .filter(Boolean)
    .join(", ");
}

// -- appearance -------------------------------------------------------------------------------------------------------

function createBoxContents({ workflow: answer, graphLayout: drawn }: WorkflowView): BoxContent[] {
  const [currentWorkflow, now] = [answer.value, drawn.value];
  if (!currentWorkflow || !now || currentWorkflow.actions.length !== now.boxes.boxOfVertex.length) return [];
  return now.boxes.members.map((members) =>
    createBoxContent(members.flatMap((vertex) => currentWorkflow.actions[vertex] ?? [])),
  );
}

function createBoxContent(actions: readonly Action[]): BoxContent {
  const counts = countStates(actions.map((action) => action.state));
  const look = stateStyle(counts[0]?.[0] ?? "");
  const stateFilter = state.states.value;
  const faint = stateFilter !== "" && !actions.some((action) => action.state === stateFilter);
  const [first] = actions;
  if (!first) return { title: "", note: "", style: look, shares: [], isGroup: false, isFaint: faint };
  if (actions.length === 1)
    return {
      title: first.action_id,
      note: describeAction(first),
      style: look,
      shares: progressShares(first),
      isGroup: false,
      isFaint: faint,
    };
  return {
    title: `${actions.length} × ${describeNames(actions)}`,
    note: counts.map(([name, count]) => `${count} ${name}`).join(", "),
    style: look,
    shares: counts.toReversed().map(([name, count]) => [stateStyle(name).color, count / actions.length]),
    isGroup: true,
    isFaint: faint,
  };
}

function describeNames(actions: readonly Action[]): string {
  return commonName(actions.map((action) => action.action_id));
}

function describeAction(action: Action): string {
  const { action_type: type, ended, error, items, progress, state: name } = action;
  if (name === "failed" && error) return truncate(`failed: ${error}`, 34);
  const took = ended && name === "done" ? formatSeconds(actionSeconds(action, 0)) : "";
  const far =
    !ended &&
    (items ? `${formatInteger(items.done)} of ${formatInteger(items.total)}` : progress ? formatPercent(progress) : "");
  return [type, name === "done" ? "" : name, far, took].filter(Boolean).join(", ");
}

function progressShares({ progress, ended, state: name }: Action): [string, number][] {
  return progress && !ended ? [[stateStyle(name).color, progress]] : [];
}

function createDrawing(
  { path: lit, structure }: WorkflowView,
  { layout, boxes, anyOutcomeEdges: loose }: GraphLayout,
  looks: readonly BoxContent[],
  cursor: number | undefined,
  moving: boolean,
): Drawing {
  const way = lit.value?.vertices.map((vertex) => boxes.boxOfVertex[vertex] as number) ?? [];
  const steps = new Set(way.slice(1).map((box, index) => `${way[index]} ${box}`));
  const chosen = boxes.boxOfVertex[structure.value?.vertexOf.get(state.action.value) ?? -1];
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

interface FrameScheduler {
  (next: View): void;
  /** Return the last requested view, which may not be drawn yet. */
  latest(): View | undefined;
  forget(): void;
  /** Return True if the picture was moved since the pointer was pressed. */
  moved(): boolean;
  drag(moved: boolean): void;
}

/** Time in milliseconds without a new view after which the picture is at rest. */
const STILL_MS = 140;

/** Pass on only the last view of each frame. */
function useFrames(pass: (view: View) => void, moving: Signal<boolean>): FrameScheduler {
  return useMemo(() => {
    let [frame, moved, rest] = [0, false, 0];
    let latest: View | undefined;
    const see = (next: View) => {
      latest = next;
      moving.value = true;
      clearTimeout(rest);
      rest = setTimeout(() => (moving.value = false), STILL_MS) as unknown as number;
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
function usePointer(
  container: preact.RefObject<HTMLDivElement | null>,
  see: FrameScheduler,
  drawnNow: () => View | undefined,
  layout: GraphLayout["layout"],
): void {
  useEffect(() => {
    const element = container.current;
    if (!element) return undefined;
    const fingers = new Map<number, { x: number; y: number }>();
    const now = () => see.latest() ?? drawnNow();
    const at = (event: { clientX: number; clientY: number }) => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const windowSize = () => ({ width: element.clientWidth, height: element.clientHeight });
    const wheel = (event: WheelEvent) => {
      const view = now();
      if (!view) return;
      event.preventDefault();
      const scale = event.deltaMode === 1 ? 30 : 1;
      const { x, y } = at(event);
      if (event.shiftKey) see(panView(view, -(event.deltaY || event.deltaX) * scale, 0, layout, windowSize()));
      else see(zoomView(view, 1.0018 ** (-event.deltaY * scale * (event.ctrlKey ? 4 : 1)), x, y));
    };
    /** Move the view to a point of the map; return true if the point is on the map. */
    const jump = (x: number, y: number) => {
      const view = now();
      const map = view && mapRect(layout, view, windowSize());
      const next = map && viewAtMapPoint(view, map, x, y, windowSize());
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
      if (!other) return see(panView(view, here.x - before.x, here.y - before.y, layout, windowSize()));
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
