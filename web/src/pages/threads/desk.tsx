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
import { Details, zoomToPicked } from "./details";
import { Counters, Distribution, Metrics, Window } from "./figures";
import { fit, Lanes, Legend, Overview, pan, useChase, zoom } from "./lanes";
import { LogView } from "./log";
import { standing, type Standing } from "./model/standing";
import { sweeps } from "./model/sweep";
import { Player, resetWithUndo } from "./player";
import {
  ages,
  cell,
  choose,
  compare,
  loaded,
  main,
  mark,
  other,
  otherLoaded,
  otherRun,
  pick,
  picked,
  play,
  range,
  replica,
  run,
  saving,
  showCell,
  state,
  tab,
  TABS,
  unknown,
  until,
  view,
  type TabName,
} from "./model/state";
import { TreeView } from "./tree";

const Sweep = lazy(() => import("./sweep").then((part) => part.Sweep), 6);
const SCHEDULERS = ["fifo", "lifo", "round_robin", "work_stealing"];

function markSeen(): void {
  if (range.peek()) mark(undefined);
  else mark({ t0: Math.max(0, view.peek().t0), t1: Math.min(until.peek(), view.peek().t1) });
  state.commit();
}

const KEYS: Shortcuts = {
  Space: { text: "play and pause", run: play },
  R: { text: "reset: show the whole replica from its start", run: resetWithUndo },
  w: { text: "zoom in", run: () => zoom(1 / 1.5) },
  s: { text: "zoom out", run: () => zoom(1.5) },
  a: { text: "pan to the left", run: () => pan(-0.2) },
  d: { text: "pan to the right", run: () => pan(0.2) },
  F: { text: "fit: the marked range, else all", run: fit },
  M: { text: "mark the view as a range, or clear the range", run: markSeen },
  Z: { text: "zoom to the picked thread", run: zoomToPicked },
  C: { text: "show or hide the critical path", run: () => (state.critical.value = !state.critical.peek()) },
  X: { text: "show or hide steals", run: () => (state.steals.value = !state.steals.peek()) },
  "[": { text: "previous replica", run: () => choose(replica.peek() - 1) },
  "]": { text: "next replica", run: () => choose(replica.peek() + 1) },
  V: {
    text: "next of tree, log, statistics",
    run: () => show(TABS[(TABS.indexOf(tab.peek()) + 1) % TABS.length] as TabName),
  },
  "/": { text: "find a thread", run: () => document.getElementById("find")?.focus() },
  Escape: {
    text: "clear the selection and the range",
    run: () => (picked.peek() === NONE ? mark(undefined) : pick(NONE)),
  },
};

function show(name: TabName): void {
  state.tab.value = name;
  state.commit();
}

export function Desk() {
  useEffect(() => bindShortcuts(KEYS), []);
  useChase();
  return (
    <>
      <div class="answers" data-settled={ages.value === ""}>
        <Metrics />
        {sweeps(run.result.value?.cells ?? []) && <Sweep />}
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
      <Lower />
    </>
  );
}

function Picture() {
  const { loading, problem } = main.value.value;
  if (problem)
    return (
      <div class="trouble" role="alert">
        <p>The trace could not be loaded: {problem.detail}</p>
        <Button onClick={main.again}>Try again</Button>
      </div>
    );
  if (!loaded.value) return <Waiting loading={loading} />;
  return (
    <div class="shown" data-loading={loading} aria-busy={loading}>
      <Tools />
      <Counters />
      <Overview from={loaded} />
      {state.vs.value && <h2 class="rival-title">{loaded.value.trace.scheduler.replaceAll("_", " ")}</h2>}
      <Lanes from={loaded} first />
      {state.vs.value && <Rival />}
      <Legend />
      <Player />
      {loaded.value.trace.truncated && (
        <p class="warn small">
          The trace was cut at its limit of events: later events are not drawn, but count in the results above.
        </p>
      )}
    </div>
  );
}

function Waiting({ loading }: { loading: boolean }) {
  const job = run.job.value;
  const { text, bad, coming } = standingNow(loading);
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
        {!coming && <a href="/">Show the example</a>}
      </div>
    </div>
  );
}

function standingNow(loading: boolean): Standing {
  return standing({
    id: state.job.value,
    job: run.job.value,
    seen: run.seen.value,
    trouble: unknown.value,
    problem: run.problem.value,
    recording: loading ? replica.value : undefined,
  });
}

/** Return the color modes; modes about steals or waits are omitted if there were none. */
function modes(): readonly string[] {
  const opened = loaded.value;
  if (!opened) return MODES;
  const { trace, index } = opened;
  const says: Record<string, boolean> = { stolen: trace.steals.time.length > 0, wait: index.maxWait > 0 };
  return MODES.filter((each) => says[each] ?? true);
}

function Tools() {
  const mine = state.job.value ? cell.value : undefined;
  const offered = modes();
  const cells = run.result.value?.cells ?? [];
  const others = SCHEDULERS.filter((each) => each !== mine?.scheduler);
  const against = (scheduler: string) =>
    compare(scheduler).catch((error: unknown) => showError("The other policy", error));
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const opened = loaded.peek();
    const wanted = (event.currentTarget as HTMLFormElement).querySelector("input")?.value ?? "";
    const thread = opened ? threadAt(opened.trace, opened.tree, wanted) : NONE;
    if (thread === NONE)
      return showToast(`This replica has no thread ${wanted}; names are T3.0.1: child 1 of child 0 of root 3`);
    pick(thread);
    zoomToPicked();
  };
  return (
    <div class="row tools" role="group" aria-label="Picture">
      {mine && cells.length > 1 && (
        <label class="row">
          cell{" "}
          <select value={String(mine?.cell ?? 0)} onChange={(event) => showCell(Number(event.currentTarget.value))}>
            {cells.map((each) => (
              <option key={each.cell} value={String(each.cell)}>
                {each.cores} {each.cores === 1 ? "core" : "cores"}, {each.scheduler.replaceAll("_", " ")}
              </option>
            ))}
          </select>
        </label>
      )}
      {mine && (
        <span class="row">
          <Button
            aria-label="Previous replica"
            disabled={replica.value === 0}
            onClick={() => choose(replica.peek() - 1)}
          >
            ‹
          </Button>
          <span class="num">replica {loaded.value?.trace.replica ?? replica.value}</span>
          <Button
            aria-label="Next replica"
            disabled={replica.value >= mine.replicas - 1}
            onClick={() => choose(replica.peek() + 1)}
          >
            ›
          </Button>
        </span>
      )}
      {offered.length > 1 && (
        <label class="row">
          colour{" "}
          <select value={state.color.value} onChange={(event) => (state.color.value = event.currentTarget.value)}>
            {offered.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
      )}
      {loaded.value?.critical.isComplete && <Switch of={state.critical}>Critical path</Switch>}
      {offered.includes("stolen") && <Switch of={state.steals}>Steals</Switch>}
      {mine && (
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
      <Button onClick={fit}>Fit</Button>
      <Button onClick={() => (saving.value = true)}>Save</Button>
    </div>
  );
}

/** Toggle button. */
function Switch({ of, children }: { of: Signal<boolean>; children: string }) {
  return (
    <Button aria-pressed={of.value} onClick={() => (of.value = !of.peek())}>
      {children}
    </Button>
  );
}

/** Lanes of the second policy, or the reason why they are missing. */
function Rival() {
  const { loading, problem } = other.value.value;
  const job = otherRun.job.value;
  const name = state.vs.value.replaceAll("_", " ");
  if (problem)
    return (
      <p class="trouble" role="alert">
        The trace with {name} could not be loaded: {problem.detail} <Button onClick={other.again}>Try again</Button>
      </p>
    );
  if (otherLoaded.value)
    return (
      <>
        <h2 class="rival-title">{name}, the same replica: the same threads and work</h2>
        <Lanes from={otherLoaded} first={false} />
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

function Lower() {
  const SHOWN: Record<TabName, () => preact.JSX.Element | null> = { tree: TreeView, log: LogView, statistics: Window };
  const Shown = SHOWN[tab.value];
  if (!loaded.value && !standingNow(main.value.value.loading).coming) return null;
  return (
    <section class="lower" aria-label="Details of the replica">
      <Tabs
        label="Details of the replica"
        current={tab.value}
        onChange={(id) => show(id as TabName)}
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
