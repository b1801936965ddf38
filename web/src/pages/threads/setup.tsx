/** Form for the program and the machine, generated from the kind's schema, and the job's progress. */

import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem, type Job, type Kind, type Problem } from "../../lib/api";
import { formatCompact, formatInteger } from "../../lib/format";
import { clusterTime, knownUntil } from "../../lib/live";
import { shortId, formatDuration } from "../../lib/naming";
import { loadKinds } from "../../lib/jobs";
import { flattenParameters } from "../../lib/parameters";
import { Button } from "../../ui/button";
import type { Schema } from "../../ui/fields";
import { lazy } from "../../ui/lazy";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { LoadingRows } from "../../ui/table";
import { showError } from "../../ui/toast";
import PRESETS from "./model/presets.json";
import { applicableSchema, expectedThreads } from "./model/result";
import { draft, loaded, mainTrace, run, startJob, state, jobUnknown } from "./model/state";

const SchemaForm = lazy(() => import("../../ui/form").then((part) => part.SchemaForm), 6);
const MAIN_FIELDS = ["scheduler", "cores", "max_depth", "thread_count", "replicas", "seed", "spawn"] as const;

const kind = signal<Kind | undefined>(undefined);
/** True while the form is open although a job is shown. */
export const isEditing = signal(false);

function defaultParameters(): Record<string, unknown> {
  const properties = (kind.value?.schema as Schema | undefined)?.properties ?? {};
  return Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, each.default ?? null]));
}

/** Return the parameters that differ from the defaults. */
function changedParameters(parameters: Record<string, unknown>): Record<string, unknown> {
  const usual = defaultParameters();
  return Object.fromEntries(
    Object.entries(parameters).filter(
      ([name, each]) => name !== "trace" && each !== null && JSON.stringify(each) !== JSON.stringify(usual[name]),
    ),
  );
}

const enteredParameters = computed(() =>
  state.set.value.length ? draft.value : changedParameters(run.job.value?.parameters ?? {}),
);
const allParameters = computed<Record<string, unknown>>(() => ({ ...defaultParameters(), ...enteredParameters.value }));

/** Describe the program and machine in a few words. */
export function describeProgram(parameters: Record<string, unknown>): string {
  const each = (value: unknown) => (Array.isArray(value) ? value : [value]).join(", ").replaceAll("_", " ");
  const some = (count: unknown, name: string) =>
    `${formatInteger(Number(count))} ${name}${Number(count) === 1 ? "" : "s"}`;
  return (
    `${each(parameters.scheduler)} on ${each(parameters.cores)} core${String(parameters.cores) === "1" ? "" : "s"}, ` +
    `${some(parameters.thread_count, "root")}, depth ${each(parameters.max_depth)}, ` +
    `${some(parameters.replicas, "replica")}, seed ${parameters.seed ?? "drawn"}`
  );
}

export function Setup() {
  const problem = useSignal<Problem | undefined>(undefined);
  useEffect(
    () =>
      void loadKinds().then(
        (list) => (kind.value = list.find((each) => each.type === "thread")),
        (error: unknown) => (problem.value = asProblem(error)),
      ),
    [],
  );
  return (
    <section class="setup" aria-label="Program and machine">
      {state.job.value && !isLost() ? <SetupSummary /> : <Welcome />}
      {isEditing.value && problem.value && (
        <p class="trouble" role="alert">
          The list of parameters could not be loaded: {problem.value.detail}
        </p>
      )}
      {isEditing.value && !problem.value && (kind.value ? <SetupForm kind={kind.value} /> : <LoadingRows rows={3} />)}
    </section>
  );
}

/** Return True if the job does not exist (any more). */
function isLost(): boolean {
  return !run.job.value && (run.wasKnown.value || jobUnknown.value !== undefined);
}

/** Introduction with a first program. */
function Welcome() {
  const trace = loaded.value?.trace;
  const { isLoading: loading, problem } = mainTrace.value.value;
  const hasContent = run.result.value || (!trace && !loading && !problem);
  return (
    <div class="welcome">
      {!state.job.value && (
        <p class="lead">
          {hasContent
            ? "A program whose threads spawn threads, simulated on 8 cores: each bar is a thread, each arrow a " +
              "steal, each figure a mean of 300 such runs."
            : "A run loaded from a file."}
        </p>
      )}
      <div class="row presets" role="group" aria-label="Run on this cluster">
        <span>Run</span>
        {PRESETS.map(({ title, about, parameters }) => (
          <Button
            key={title}
            title={about}
            onClick={() => void startJob(parameters).catch((error: unknown) => showError(title, error))}
          >
            {title}
          </Button>
        ))}
        <UnfoldButton closed="Your own program" />
      </div>
    </div>
  );
}

function UnfoldButton({ closed }: { closed: string }) {
  return (
    <Button aria-expanded={isEditing.value} onClick={() => (isEditing.value = !isEditing.value)}>
      {isEditing.value ? "Hide the form" : closed}
    </Button>
  );
}

/** Return the short ID of an ended job, and its duration unless it never started. */
function formatIdAndTime(job: Job): string {
  const time = formatDuration(job, clusterTime(knownUntil.value));
  return `${shortId(job.job_id)}${time && `, took ${time}`}`;
}

function SetupSummary() {
  const job = run.job.value;
  const active = job && !["done", "failed", "cancelled", "skipped"].includes(job.state);
  return (
    <div class="row summary">
      {job && <StateLabel state={job.state} />}
      <span class="grow program">
        {job
          ? describeProgram({ ...defaultParameters(), ...job.parameters })
          : jobUnknown.value
            ? ""
            : "Loading the job"}
      </span>
      {job && !active && <span class="soft small">{formatIdAndTime(job)}</span>}
      {active && (
        <span class="how">
          <Progress job={job} hasButtons unit="replicas" />
        </span>
      )}
      {active && job.waiting_because && <span class="soft small">{job.waiting_because}</span>}
      <UnfoldButton closed="Change" />
    </div>
  );
}

/** Map API errors to fields: "parameters.spawn.mean" belongs to "spawn.mean". */
function fieldErrors(problem: Problem | undefined): Record<string, string> {
  return problem?.field ? { [problem.field.replace(/^parameters\./, "")]: problem.detail } : {};
}

function SetupForm({ kind: { schema } }: { kind: Kind }) {
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy.peek()) return;
    [busy.value, problem.value] = [true, undefined];
    try {
      await startJob(enteredParameters.peek());
      isEditing.value = false;
    } catch (error) {
      problem.value = asProblem(error);
    }
    busy.value = false;
  };
  const set = (next: Record<string, unknown>) => {
    state.set.value = flattenParameters(next);
    problem.value = undefined;
  };
  return (
    <form class="program-form" onSubmit={(event) => void send(event)} noValidate>
      <SchemaForm
        schema={applicableSchema(schema as Schema, allParameters.value, enteredParameters.value)}
        value={enteredParameters.value}
        mainFields={MAIN_FIELDS}
        errors={fieldErrors(problem.value)}
        onChange={set}
      />
      {problem.value && (
        <p class="bad refused" role="alert">
          Refused: {problem.value.detail}
        </p>
      )}
      <div class="row starting">
        <ExpectedSize />
        <span class="grow" />
        <span class="row" role="group" aria-label="Fill in">
          <span class="soft">Fill in</span>
          {PRESETS.map(({ title, about, parameters }) => (
            <Button key={title} title={about} onClick={() => set(parameters)}>
              {title}
            </Button>
          ))}
        </span>
        <button type="submit" class="primary" disabled={busy.value}>
          {busy.value ? "Starting" : "Start"}
        </button>
      </div>
    </form>
  );
}

/** Shows the expected size of the program; the API rejects larger programs with the same numbers. */
function ExpectedSize() {
  const threads = expectedThreads(allParameters.value);
  if (threads === undefined) return <span />;
  const cells = [allParameters.value.cores, allParameters.value.scheduler].reduce(
    (count: number, each) => count * (Array.isArray(each) ? each.length : 1),
    1,
  );
  const max = Number(allParameters.value.max_threads);
  const runs = Number(allParameters.value.replicas) * cells;
  return (
    <p class={threads > max ? "warn" : "soft"} aria-live="polite">
      About <span class="num">{formatCompact(Math.round(threads))}</span> threads in a replica,{" "}
      <span class="num">{formatCompact(Math.round(threads * runs))}</span> in all.
      {threads > max &&
        ` That is more than max threads (${formatInteger(max)}): it will be refused. Lower depth, roots or children.`}
    </p>
  );
}
