/** Controls that start, pause and cancel a run, and its progress. */

import { batch, computed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { STRATEGIES, STRATEGY_TEXTS } from "./model/strategies";
import { Button } from "../../ui/button";
import { Progress } from "../../ui/progress";
import { JobName } from "../../ui/job-name";
import { StateLabel } from "../../ui/state";
import { describeDuration, describeBasis } from "./model/estimate";
import {
  activeJobs,
  cancelRun,
  currentJob,
  jobViews,
  jobProblemText,
  pauseRun,
  runPhase,
  resumeRun,
  formatRuntime,
  startRun,
} from "./model/run";
import { loadEarlierJobs, clusterState } from "./model/cluster-state";
import { resetPage } from "./model/page-actions";
import { CheckboxField, NumberField, IntegerField } from "./fields";
import { requestedRange, COLOR_MODES, fitView, metric, rangeSize, state, strategy } from "./model/state";
import { snapshot } from "../../lib/live";

function setField(name: "from" | "to", value: string): void {
  batch(() => {
    state[name].value = value;
    fitView();
  });
}

/** Return the width of a field in characters, limited to a maximum. */
function fieldWidth(text: string, min: number): number {
  return Math.min(30, Math.max(min, text.length + 1));
}

function RangeFields() {
  const { errors: why, isUnbounded: unbounded } = requestedRange.value;
  return (
    <>
      <NumberField
        text="n from"
        value={state.from.value}
        error={why.from}
        note="range-note"
        size={fieldWidth(state.from.value, 10)}
        onChange={(text) => setField("from", text)}
      />
      <NumberField
        text="to"
        value={state.to.value}
        error={why.to}
        note="range-note"
        size={fieldWidth(state.to.value, 12)}
        onChange={(text) => setField("to", text)}
      />
      <span
        id="range-note"
        class={why.from || why.to ? "small bad" : "small soft"}
        role="status"
        title={describeBasis(clusterState.value)}
      >
        {why.from
          ? `from ${why.from}`
          : why.to
            ? `to ${why.to}`
            : unbounded
              ? `no end: ${describeDuration(rangeSize.value, clusterState.value)}, until cancelled`
              : describeDuration(rangeSize.value, clusterState.value)}
      </span>
    </>
  );
}

function StrategyFields() {
  return (
    <>
      <label class="inline">
        strategy
        <select
          value={strategy.value}
          onChange={(event) => (state.strategy.value = event.currentTarget.value)}
          title={STRATEGY_TEXTS[strategy.value]}
        >
          {STRATEGIES.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      {strategy.value !== "sequential" && (
        <>
          <IntegerField name="windows" text="windows" min={1} max={1000} />
          <IntegerField name="size" text="of" min={1} max={2 ** 40} />
          <IntegerField name="parallel" text="jobs at once" min={1} max={16} />
          <IntegerField name="seed" text="seed" min={0} max={2 ** 31} />
        </>
      )}
    </>
  );
}

/** The devices that are computing, in words. */
export const engineText = computed(() => {
  const live = snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner");
  const gpus = snapshot.value.gpus.filter((gpu) => gpu.live).length;
  const workers = `${live.length} worker${live.length === 1 ? "" : "s"}`;
  return live.length === 0 ? "no worker" : gpus ? `${gpus} GPU${gpus > 1 ? "s" : ""}, ${workers}` : `CPU, ${workers}`;
});

const BASE_TITLE = "Collatz - Threads Cluster";

/** Show progress and device in the tab's title. */
function useTitle(): void {
  const job = currentJob.value;
  const share =
    job && (runPhase.value === "running" || runPhase.value === "paused")
      ? `${Math.floor(job.progress * 100)}\u202f% ${engineText.value} - `
      : "";
  useEffect(() => {
    document.title = `${share}${BASE_TITLE}`;
    return () => (document.title = BASE_TITLE);
  }, [share]);
}

export function Controls() {
  useTitle();
  useEffect(() => void loadEarlierJobs(), []);
  const running = runPhase.value === "running" || runPhase.value === "paused";
  const wrong = Object.keys(requestedRange.value.errors).length > 0;
  return (
    <section class="controls" aria-label="Run">
      <RangeFields />
      <StrategyFields />
      {!running && (
        <Button class="primary" disabled={wrong || runPhase.value === "opening"} onClick={() => void startRun()}>
          Start
        </Button>
      )}
      {runPhase.value === "running" && <Button onClick={() => void pauseRun()}>Pause</Button>}
      {runPhase.value === "paused" && (
        <Button class="primary" onClick={() => void resumeRun()}>
          Resume
        </Button>
      )}
      {running && <Button onClick={() => void cancelRun()}>Cancel</Button>}
      <Button class="plain" onClick={() => void resetPage()}>
        Reset
      </Button>
      <span class="grow" />
      <label class="inline">
        color
        <select value={metric.value} onChange={(event) => (state.colour.value = event.currentTarget.value)}>
          {COLOR_MODES.map((each) => (
            <option key={each} value={each}>
              {{ count: "how many", peak: "bits of the peak", residue: "n mod m" }[each]}
            </option>
          ))}
        </select>
      </label>
      <CheckboxField name="log">log n</CheckboxField>
    </section>
  );
}

/** The jobs of the run. */
export function JobLine() {
  const job = currentJob.value;
  const all = jobViews.value;
  const done = all.filter((each) => each.state === "done").length;
  return (
    <section class="job-line" aria-label="Job">
      {job ? (
        <>
          <StateLabel state={job.state} />
          <a href={`/cluster.html#tab=jobs&job=${job.job_id}`}>
            <JobName job={job} />
          </a>
          <Progress job={job} />
          {all.length > 1 && (
            <span class="small num">
              {done} of {all.length} windows done, {activeJobs.value.length} active
            </span>
          )}
          {job.waiting_because && <span class="small soft">{job.waiting_because}</span>}
          {job.error && <span class="small bad">{job.error}</span>}
          <span class="small num soft">runtime {formatRuntime()}</span>
        </>
      ) : jobProblemText.value ? (
        <span class="small bad" role="status">
          {jobProblemText.value} <a href="/cluster.html#tab=jobs">All jobs</a>
        </span>
      ) : (
        <span class="small soft">
          {runPhase.value === "opening"
            ? `Looking up job ${state.job.value}`
            : "No job yet. This preview was computed in your browser. " +
              "Press Start to run the full range on the cluster."}
        </span>
      )}
      <span class="grow" />
      <span class="small soft engine">engine {engineText.value}</span>
    </section>
  );
}

/** Return the total numbers/s of the run's jobs; null if unknown. */
export function totalSpeed(): number | null {
  const known = activeJobs.value.flatMap((job) => job.rate ?? []);
  return known.length ? known.reduce((sum, each) => sum + each, 0) : null;
}
