/**
 * Parts of the page that need a replica or a result: pictures, distribution, tree, log, statistics and their shortcuts.
 */

import type { Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { formatPercent } from "../../lib/format";
import { allowedVerbs } from "../../lib/jobs";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { MODES } from "../../timeline/sums";
import { threadAt } from "./model/log";
import { NONE } from "../../timeline/model";
import { Button } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { performVerb } from "../../ui/progress";
import { LoadingRows } from "../../ui/table";
import { Panel, Tabs } from "../../ui/tabs";
import { showError, showToast } from "../../ui/toast";
import { Details, zoomToSelected } from "./details";
import { Counters, Distribution, Metrics, WindowStatistics } from "./metrics";
import { fitView, Lanes, Legend, Overview, panBy, useFollowPlayhead, zoomBy } from "./lanes";
import { LogView } from "./log";
import { pictureStatus, type PictureStatus } from "./model/picture-status";
import { hasSweep } from "./model/sweep";
import { PlaybackControls, resetWithUndo } from "./player";
import {
  agesClass,
  cell,
  showReplica,
  comparePolicy,
  loaded,
  mainTrace,
  markRange,
  otherTrace,
  otherLoaded,
  otherRun,
  selectThread,
  selectedThread,
  togglePlay,
  markedRange,
  replica,
  run,
  isSaveDialogOpen,
  showCell,
  state,
  tab,
  TABS,
  jobUnknown,
  endTime,
  view,
  type TabName,
} from "./model/state";
import { TreeView } from "./tree";

const Sweep = lazy(() => import("./sweep").then((part) => part.Sweep), 6);
const SCHEDULERS = ["fifo", "lifo", "round_robin", "work_stealing"];

function toggleRange(): void {
  if (markedRange.peek()) markRange(undefined);
  else markRange({ t0: Math.max(0, view.peek().t0), t1: Math.min(endTime.peek(), view.peek().t1) });
  state.commit();
}

const SHORTCUTS: Shortcuts = {
  Space: { text: "play and pause", run: togglePlay },
  R: { text: "reset: show the whole replica from its start", run: resetWithUndo },
  w: { text: "zoom in", run: () => zoomBy(1 / 1.5) },
  s: { text: "zoom out", run: () => zoomBy(1.5) },
  a: { text: "pan to the left", run: () => panBy(-0.2) },
  d: { text: "pan to the right", run: () => panBy(0.2) },
  F: { text: "fit: the marked range, else all", run: fitView },
  M: { text: "mark the view as a range, or clear the range", run: toggleRange },
  Z: { text: "zoom to the picked thread", run: zoomToSelected },
  C: { text: "show or hide the critical path", run: () => (state.critical.value = !state.critical.peek()) },
  X: { text: "show or hide steals", run: () => (state.steals.value = !state.steals.peek()) },
  "[": { text: "previous replica", run: () => showReplica(replica.peek() - 1) },
  "]": { text: "next replica", run: () => showReplica(replica.peek() + 1) },
  V: {
    text: "next of tree, log, statistics",
    run: () => showTab(TABS[(TABS.indexOf(tab.peek()) + 1) % TABS.length] as TabName),
  },
  "/": { text: "find a thread", run: () => document.getElementById("find")?.focus() },
  Escape: {
    text: "clear the selection and the range",
    run: () => (selectedThread.peek() === NONE ? markRange(undefined) : selectThread(NONE)),
  },
};

function showTab(name: TabName): void {
  state.tab.value = name;
  state.commit();
}

export function Workspace() {
  useEffect(() => bindShortcuts(SHORTCUTS), []);
  useFollowPlayhead();
  return (
    <>
      <div class="answers" data-settled={agesClass.value === ""}>
        <Metrics />
        {hasSweep(run.result.value?.cells ?? []) && <Sweep />}
      </div>
      <div class="desk">
        <div class="picture">
          <Picture />
        </div>
        <aside class="side" aria-label="Picked thread and replicas">
          <Details />
          <Distribution />
        </aside>
      </div>
      <LowerPanel />
    </>
  );
}

function Picture() {
  const { isLoading: loading, problem } = mainTrace.value.value;
  if (problem)
    return (
      <div class="trouble" role="alert">
        <p>The trace could not be loaded: {problem.detail}</p>
        <Button onClick={mainTrace.reload}>Try again</Button>
      </div>
    );
  if (!loaded.value) return <PictureMessage loading={loading} />;
  return (
    <div class="shown" data-loading={loading} aria-busy={loading}>
      <PictureTools />
      <Counters />
      <Overview trace={loaded} />
      {state.vs.value && <h2 class="rival-title">{loaded.value.trace.scheduler.replaceAll("_", " ")}</h2>}
      <Lanes trace={loaded} isFirst />
      {state.vs.value && <OtherLanes />}
      <Legend />
      <PlaybackControls />
      {loaded.value.trace.truncated && (
        <p class="warn small">
          The trace was cut at its limit of events: later events are not drawn, but count in the results above.
        </p>
      )}
    </div>
  );
}

function PictureMessage({ loading }: { loading: boolean }) {
  const job = run.job.value;
  const { text, isError: bad, isExpected: coming } = currentStatus(loading);
  return (
    <div class={coming ? "waiting" : "stack"}>
      <p class={bad ? "trouble" : "soft"} role={bad ? "alert" : "status"}>
        {text}
      </p>
      {coming && <LoadingRows rows={8} />}
      <div class="row">
        {job && allowedVerbs(job).includes("retry") && (
          <Button onClick={() => void performVerb(job.job_id, "retry")}>Retry</Button>
        )}
        {!coming && <a href="/index.html">Show the example</a>}
      </div>
    </div>
  );
}

function currentStatus(loading: boolean): PictureStatus {
  return pictureStatus({
    id: state.job.value,
    job: run.job.value,
    wasKnown: run.wasKnown.value,
    jobProblem: jobUnknown.value,
    resultProblem: run.problem.value,
    recording: loading ? replica.value : undefined,
  });
}

/** Return the color modes; modes about steals or waits are omitted if there were none. */
function availableModes(): readonly string[] {
  const opened = loaded.value;
  if (!opened) return MODES;
  const { trace, index } = opened;
  const says: Record<string, boolean> = { stolen: trace.steals.time.length > 0, wait: index.maxWait > 0 };
  return MODES.filter((each) => says[each] ?? true);
}

function PictureTools() {
  const currentCell = state.job.value ? cell.value : undefined;
  const offered = availableModes();
  const cells = run.result.value?.cells ?? [];
  const others = SCHEDULERS.filter((each) => each !== currentCell?.scheduler);
  const against = (scheduler: string) =>
    comparePolicy(scheduler).catch((error: unknown) => showError("The other policy", error));
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const opened = loaded.peek();
    const text = (event.currentTarget as HTMLFormElement).querySelector("input")?.value ?? "";
    const thread = opened ? threadAt(opened.trace, opened.tree, text) : NONE;
    if (thread === NONE)
      return showToast(`This replica has no thread ${text}; names are T3.0.1: child 1 of child 0 of root 3`);
    selectThread(thread);
    zoomToSelected();
  };
  return (
    <div class="row tools" role="group" aria-label="Picture">
      {currentCell && cells.length > 1 && (
        <label class="row">
          cell{" "}
          <select
            value={String(currentCell?.cell ?? 0)}
            onChange={(event) => showCell(Number(event.currentTarget.value))}
          >
            {cells.map((each) => (
              <option key={each.cell} value={String(each.cell)}>
                {each.cores} {each.cores === 1 ? "core" : "cores"}, {each.scheduler.replaceAll("_", " ")}
              </option>
            ))}
          </select>
        </label>
      )}
      {currentCell && (
        <span class="row">
          <Button
            aria-label="Previous replica"
            disabled={replica.value === 0}
            onClick={() => showReplica(replica.peek() - 1)}
          >
            ‹
          </Button>
          <span class="num">replica {loaded.value?.trace.replica ?? replica.value}</span>
          <Button
            aria-label="Next replica"
            disabled={replica.value >= currentCell.replicas - 1}
            onClick={() => showReplica(replica.peek() + 1)}
          >
            ›
          </Button>
        </span>
      )}
      {offered.length > 1 && (
        <label class="row">
          color{" "}
          <select value={state.color.value} onChange={(event) => (state.color.value = event.currentTarget.value)}>
            {offered.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
      )}
      {loaded.value?.critical.isComplete && <ToggleButton value={state.critical}>Critical path</ToggleButton>}
      {offered.includes("stolen") && <ToggleButton value={state.steals}>Steals</ToggleButton>}
      {currentCell && (
        <label class="row">
          compare with{" "}
          <select value={state.vs.value} onChange={(event) => void against(event.currentTarget.value)}>
            <option value="">nothing</option>
            {others.map((each) => (
              <option key={each} value={each}>
                {each.replaceAll("_", " ")}
              </option>
            ))}
          </select>
        </label>
      )}
      <span class="grow" />
      <form class="row" role="search" onSubmit={find}>
        <label class="row">
          find <input id="find" type="text" size={8} placeholder="T3.0.1" autocomplete="off" spellcheck={false} />
        </label>
      </form>
      <Button onClick={fitView}>Fit</Button>
      <Button onClick={() => (isSaveDialogOpen.value = true)}>Save</Button>
    </div>
  );
}

/** Toggle button. */
function ToggleButton({ value: of, children }: { value: Signal<boolean>; children: string }) {
  return (
    <Button aria-pressed={of.value} onClick={() => (of.value = !of.peek())}>
      {children}
    </Button>
  );
}

/** Lanes of the second policy, or the reason why they are missing. */
function OtherLanes() {
  const { isLoading: loading, problem } = otherTrace.value.value;
  const job = otherRun.job.value;
  const name = state.vs.value.replaceAll("_", " ");
  if (problem)
    return (
      <p class="trouble" role="alert">
        The trace with {name} could not be loaded: {problem.detail}{" "}
        <Button onClick={otherTrace.reload}>Try again</Button>
      </p>
    );
  if (otherLoaded.value)
    return (
      <>
        <h2 class="rival-title">{name}, the same replica: the same threads and work</h2>
        <Lanes trace={otherLoaded} isFirst={false} />
      </>
    );
  if (job?.state === "failed" || job?.state === "cancelled" || job?.state === "skipped")
    return (
      <p class="trouble" role="alert">
        The job with {name} is {job.state}. {job.error}
      </p>
    );
  return (
    <p class="soft" aria-live="polite">
      {loading
        ? `A worker records the same replica with ${name}`
        : `Running the same with ${name}${job ? `: ${formatPercent(job.progress)}` : ""}`}
    </p>
  );
}

function LowerPanel() {
  const SHOWN: Record<TabName, () => preact.JSX.Element | null> = {
    tree: TreeView,
    log: LogView,
    statistics: WindowStatistics,
  };
  const Shown = SHOWN[tab.value];
  if (!loaded.value && !currentStatus(mainTrace.value.value.isLoading).isExpected) return null;
  return (
    <section class="lower" aria-label="Details of the replica">
      <Tabs
        label="Details of the replica"
        current={tab.value}
        onChange={(id) => showTab(id as TabName)}
        tabs={[
          { id: "tree", title: "Tree" },
          { id: "log", title: "Log" },
          { id: "statistics", title: "Statistics" },
        ]}
      />
      <Panel id={tab.value}>
        <Shown />
      </Panel>
    </section>
  );
}
