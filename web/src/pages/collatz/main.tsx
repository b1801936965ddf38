/** The Collatz page. */

import "./collatz.css";
import { useEffect } from "preact/hooks";
import { bindShortcuts } from "../../lib/keys";
import { Panel, Tabs } from "../../ui/tabs";
import { lazy } from "../../ui/lazy";
import { mount, Page } from "../../ui/page";
import { clearLog, cycleView, resetPage, saveNumbers, savePicture } from "./model/page-actions";
import { Controls, JobLine } from "./controls";
import { isSearching, addLine } from "./model/events";
import { Graph, toggleSelection, panBy, movePointed, zoomBy } from "./graph";
import { openJob, toggleRun } from "./model/run";
import { Figures, Records, Rules, Stats } from "./side";
import { requestValues } from "./model/data";
import { showTrajectory, fitView, limits, showView, startNumber, state, tab, TABS, view } from "./model/state";
import { visibleRange } from "./model/view";

const CoralView = lazy(() => import("./coral").then((part) => part.CoralView));
const FrontierView = lazy(() => import("./frontier").then((part) => part.FrontierView));
const HistogramView = lazy(() => import("./histogram").then((part) => part.HistogramView));
const LogView = lazy(() => import("./log").then((part) => part.LogView));
const ResiduesView = lazy(() => import("./residues").then((part) => part.ResiduesView));
const trajectory = () => import("./trajectory");
const Trajectory = lazy(() => trajectory().then((part) => part.Trajectory), 12);
const TreeView = lazy(() => import("./tree").then((part) => part.TreeView));

const TITLES: Record<(typeof TABS)[number], string> = {
  graph: "Graph",
  histogram: "Histogram",
  residues: "Residues",
  tree: "Tree",
  coral: "Coral",
  log: "Log",
  frontier: "Frontier",
};

const VIEWS = {
  graph: Graph,
  histogram: HistogramView,
  residues: ResiduesView,
  tree: TreeView,
  coral: CoralView,
  log: LogView,
  frontier: FrontierView,
};

function goToNeighbor(by: bigint): void {
  const n = startNumber.peek().value;
  if (n !== undefined && n + by >= 1n) showTrajectory(n + by);
}

async function stepBy(by: number): Promise<void> {
  const { goToStep: stepTo } = await trajectory();
  stepTo(state.step.peek() + by);
}

function focusNumber(): void {
  const field = document.getElementById("number");
  if (field instanceof HTMLInputElement) {
    field.focus();
    field.select();
  }
}

function openSearch(): void {
  isSearching.value = true;
  showView("log");
}

const SHORTCUTS = {
  Space: { text: "start, pause or resume", run: toggleRun },
  R: { text: "reset; asks first while jobs run", run: () => void resetPage() },
  ...Object.fromEntries(
    TABS.map((name, index) => [String(index + 1), { text: TITLES[name].toLowerCase(), run: () => showView(name) }]),
  ),
  V: { text: "next view", run: cycleView },
  H: { text: "histogram", run: () => showView("histogram") },
  Left: { text: "pan left", run: () => panBy(-0.2) },
  Right: { text: "pan right", run: () => panBy(0.2) },
  "+": { text: "zoom in", run: () => zoomBy(0.5) },
  "=": { text: "zoom in", run: () => zoomBy(0.5) },
  "-": { text: "zoom out", run: () => zoomBy(2) },
  F: { text: "show the whole range", run: fitView },
  "Shift+Left": { text: "point at the previous number", run: () => movePointed(-1n) },
  "Shift+Right": { text: "point at the next number", run: () => movePointed(1n) },
  M: { text: "select what is in view, or clear the selection", run: toggleSelection },
  N: { text: "go to the number of the trajectory", run: focusNumber },
  PageUp: { text: "trajectory of n + 1", run: () => goToNeighbor(1n) },
  PageDown: { text: "trajectory of n \u2212 1", run: () => goToNeighbor(-1n) },
  ".": { text: "one step forward in the trajectory", run: () => void stepBy(1) },
  ",": { text: "one step back", run: () => void stepBy(-1) },
  P: { text: "play the trajectory, or stop", run: () => void trajectory().then((part) => part.togglePlay()) },
  L: { text: "log axis of the graph", run: () => (state.log.value = !state.log.peek()) },
  S: { text: "save the picture as PNG", run: () => void savePicture() },
  E: { text: "save the numbers as CSV", run: () => void saveNumbers() },
  X: { text: "empty the log", run: clearLog },
  "/": { text: "search the log", run: openSearch },
};

function Welcome() {
  useEffect(() => {
    addLine("system", "Collatz: n goes to n / 2 when it is even, to 3n + 1 when it is odd. Press ? for the keys.");
    const job = state.job.peek();
    if (job) void openJob(job);
    return bindShortcuts(SHORTCUTS);
  }, []);
  return null;
}

function App() {
  const View = VIEWS[tab.value];
  return (
    <Page current="collatz">
      <Welcome />
      <h1 class="visually-hidden">Collatz</h1>
      <div class="collatz">
        <Controls />
        <JobLine />
        <div class="picture-column">
          <Tabs
            label="Views"
            tabs={TABS.map((id) => ({ id, title: TITLES[id] }))}
            current={tab.value}
            onChange={(id) => showView(id as (typeof TABS)[number])}
          />
          <Panel id={tab.value} class="view-panel">
            <View />
          </Panel>
        </div>
        <div class="side">
          <Figures />
          <Records />
          <Stats />
          <Rules />
        </div>
        <Trajectory />
      </div>
    </Page>
  );
}

// Compute the first sample in parallel with the page's first frame.
if (tab.peek() === "graph") requestValues(visibleRange(view.peek(), limits), state.log.peek());
mount(<App />);
