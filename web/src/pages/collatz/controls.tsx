/** Controls that start, pause and cancel a run, and its progress. */

import { batch, computed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { STRATEGIES, MEANING } from "./model/strategies";
import { Button } from "../../ui/button";
import { Progress } from "../../ui/progress";
import { JobName } from "../../ui/job-name";
import { StateLabel } from "../../ui/state";
import { expectation, ground } from "./model/estimate";
import { active, cancel, current, jobViews, lost, pause, phase, resume, runtimeText, start } from "./model/run";
import { learnPace, situation } from "./model/situation";
import { reset } from "./model/acts";
import { Check, Numeral, Whole } from "./fields";
import { asked, COLOR_MODES, fit, metric, size, state, strategy } from "./model/state";
import { snapshot } from "../../lib/live";

function set(name: "from" | "to", value: string): void {
  batch(() => {
    state[name].value = value;
    fit();
  });
}

/** Return the width of a field in characters, limited to a maximum. */
function wide(text: string, least: number): number {
  return Math.min(30, Math.max(least, text.length + 1));
}

function Range() {
  const { why, unbounded } = asked.value;
  return (
    <>
      <Numeral
        text="n from"
        value={state.from.value}
        why={why.from}
        note="range-note"
        size={wide(state.from.value, 10)}
        set={(text) => set("from", text)}
      />
      <Numeral
        text="to"
        value={state.to.value}
        why={why.to}
        note="range-note"
        size={wide(state.to.value, 12)}
        set={(text) => set("to", text)}
      />
      <span
        id="range-note"
        class={why.from || why.to ? "small bad" : "small soft"}
        role="status"
        title={ground(situation.value)}
      >
        {why.from
          ? `from ${why.from}`
          : why.to
            ? `to ${why.to}`
            : unbounded
              ? `no end: ${expectation(size.value, situation.value)}, until cancelled`
              : expectation(size.value, situation.value)}
      </span>
    </>
  );
}

function Strategy() {
  return (
    <>
      <label class="inline">
        strategy
        <select
          value={strategy.value}
          onChange={(event) => (state.strategy.value = event.currentTarget.value)}
          title={MEANING[strategy.value]}
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
          <Whole name="windows" text="windows" least={1} most={1000} />
          <Whole name="size" text="of" least={1} most={2 ** 40} />
          <Whole name="parallel" text="jobs at once" least={1} most={16} />
          <Whole name="seed" text="seed" least={0} most={2 ** 31} />
        </>
      )}
    </>
  );
}

/** The devices that are computing, in words. */
export const engine = computed(() => {
  const live = snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner");
  const gpus = snapshot.value.gpus.filter((gpu) => gpu.live).length;
  const workers = `${live.length} worker${live.length === 1 ? "" : "s"}`;
  return live.length === 0 ? "no worker" : gpus ? `${gpus} GPU${gpus > 1 ? "s" : ""}, ${workers}` : `CPU, ${workers}`;
});

const BASE = "Collatz - Threads Cluster";

/** Show progress and device in the tab's title. */
function useTitle(): void {
  const job = current.value;
  const share =
    job && (phase.value === "running" || phase.value === "paused")
      ? `${Math.floor(job.progress * 100)}\u202f% ${engine.value} - `
      : "";
  useEffect(() => {
    document.title = `${share}${BASE}`;
    return () => (document.title = BASE);
  }, [share]);
}

export function Controls() {
  useTitle();
  useEffect(() => void learnPace(), []);
  const running = phase.value === "running" || phase.value === "paused";
  const wrong = Object.keys(asked.value.why).length > 0;
  return (
    <section class="controls" aria-label="Run">
      <Range />
      <Strategy />
      {!running && (
        <Button class="primary" disabled={wrong || phase.value === "opening"} onClick={() => void start()}>
          Start
        </Button>
      )}
      {phase.value === "running" && <Button onClick={() => void pause()}>Pause</Button>}
      {phase.value === "paused" && (
        <Button class="primary" onClick={() => void resume()}>
          Resume
        </Button>
      )}
      {running && <Button onClick={() => void cancel()}>Cancel</Button>}
      <Button class="plain" onClick={() => void reset()}>
        Reset
      </Button>
      <span class="grow" />
      <label class="inline">
        colour
        <select value={metric.value} onChange={(event) => (state.colour.value = event.currentTarget.value)}>
          {COLOR_MODES.map((each) => (
            <option key={each} value={each}>
              {{ count: "how many", peak: "bits of the peak", residue: "n mod m" }[each]}
            </option>
          ))}
        </select>
      </label>
      <Check name="log">log n</Check>
    </section>
  );
}

/** The jobs of the run. */
export function JobLine() {
  const job = current.value;
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
              {done} of {all.length} windows done, {active.value.length} active
            </span>
          )}
          {job.waiting_because && <span class="small soft">{job.waiting_because}</span>}
          {job.error && <span class="small bad">{job.error}</span>}
          <span class="small num soft">runtime {runtimeText()}</span>
        </>
      ) : lost.value ? (
        <span class="small bad" role="status">
          {lost.value} <a href="/cluster.html#tab=jobs">All jobs</a>
        </span>
      ) : (
        <span class="small soft">
          {phase.value === "opening"
            ? `Looking up job ${state.job.value}`
            : "No job yet. Start counts every number on the cluster; what you see before is computed in this page."}
        </span>
      )}
      <span class="grow" />
      <span class="small soft engine">engine {engine.value}</span>
    </section>
  );
}

/** Return the total numbers/s of the run's jobs; null if unknown. */
export function speed(): number | null {
  const known = active.value.flatMap((job) => job.rate ?? []);
  return known.length ? known.reduce((sum, each) => sum + each, 0) : null;
}
