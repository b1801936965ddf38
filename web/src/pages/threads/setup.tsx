/** The program and the machine: a form from the kind's schema, started as a real job, and how far it is. */

import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Problem, Kind } from "../../lib/api";
import { compact, integer } from "../../lib/format";
import { kinds } from "../../lib/jobs";
import { flat } from "../../lib/parameters";
import type { Schema } from "../../ui/fields";
import { later } from "../../ui/later";
import { Progress } from "../../ui/progress";
import { State } from "../../ui/state";
import { Skeleton } from "../../ui/table";
import { expectedThreads } from "./model/result";
import { draft, problemOf, run, start, state } from "./model/state";

const SchemaForm = later(() => import("../../ui/form").then((part) => part.SchemaForm), 6);
const FEW = ["scheduler", "cores", "max_depth", "thread_count", "replicas", "seed", "spawn"] as const;

const kind = signal<Kind | undefined>(undefined);
/** True while the form is open though there is a job. */
export const editing = signal(false);

function defaults(): Record<string, unknown> {
  const properties = (kind.value?.schema as Schema | undefined)?.properties ?? {};
  return Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, each.default ?? null]));
}

/** The parameters that differ from the defaults. */
function unusual(parameters: Record<string, unknown>): Record<string, unknown> {
  const usual = defaults();
  return Object.fromEntries(
    Object.entries(parameters).filter(
      ([name, each]) => name !== "trace" && each !== null && JSON.stringify(each) !== JSON.stringify(usual[name]),
    ),
  );
}

const given = computed(() => (state.set.value.length ? draft.value : unusual(run.job.value?.parameters ?? {})));
const all = computed<Record<string, unknown>>(() => ({ ...defaults(), ...given.value }));

/** In a few words: what is run on what. */
export function described(parameters: Record<string, unknown>): string {
  const each = (value: unknown) => (Array.isArray(value) ? value : [value]).join(", ").replaceAll("_", " ");
  return (
    `${each(parameters.scheduler)} on ${each(parameters.cores)} cores, ` +
    `${integer(Number(parameters.thread_count))} roots, depth ${each(parameters.max_depth)}, ` +
    `${integer(Number(parameters.replicas))} replicas, seed ${parameters.seed ?? "drawn"}`
  );
}

export function Setup() {
  const problem = useSignal<Problem | undefined>(undefined);
  useEffect(
    () =>
      void kinds().then(
        (list) => (kind.value = list.find((each) => each.type === "thread")),
        (error: unknown) => (problem.value = problemOf(error)),
      ),
    [],
  );
  if (problem.value)
    return (
      <p class="trouble" role="alert">
        The list of parameters could not be loaded: {problem.value.detail}
      </p>
    );
  if (!kind.value) return <Skeleton rows={3} />;
  const shown = !state.job.value || editing.value;
  return (
    <section class="setup" aria-label="Program and machine">
      {state.job.value && <Summary />}
      {shown && <Form kind={kind.value} />}
    </section>
  );
}

function Summary() {
  const job = run.job.value;
  const active = job && !["done", "failed", "cancelled", "skipped"].includes(job.state);
  return (
    <div class="row summary">
      {job && <State of={job.state} />}
      <span class="grow program">{job ? described({ ...defaults(), ...job.parameters }) : "Loading the job"}</span>
      {active && (
        <span class="how">
          <Progress job={job} steering unit="replicas" />
        </span>
      )}
      {active && job.waiting_because && <span class="soft small">{job.waiting_because}</span>}
      <button type="button" aria-expanded={editing.value} onClick={() => (editing.value = !editing.value)}>
        {editing.value ? "Hide the form" : "Change"}
      </button>
    </div>
  );
}

/** "parameters.spawn.mean" belongs to the field "spawn.mean". */
function errorsOf(problem: Problem | undefined): Record<string, string> {
  return problem?.field ? { [problem.field.replace(/^parameters\./, "")]: problem.detail } : {};
}

function Form({ kind: { schema, example } }: { kind: Kind }) {
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy.peek()) return;
    [busy.value, problem.value] = [true, undefined];
    try {
      await start(given.peek());
      editing.value = false;
    } catch (error) {
      problem.value = problemOf(error);
    }
    busy.value = false;
  };
  const set = (next: Record<string, unknown>) => {
    state.set.value = flat(next);
    problem.value = undefined;
  };
  return (
    <form class="program-form" onSubmit={(event) => void send(event)} noValidate>
      <SchemaForm
        schema={schema as Schema}
        value={given.value}
        few={FEW}
        errors={errorsOf(problem.value)}
        onChange={set}
      />
      {problem.value && (
        <p class="bad refused" role="alert">
          Refused: {problem.value.detail}
        </p>
      )}
      <div class="row starting">
        <Expected />
        <span class="grow" />
        <button type="button" onClick={() => set({ ...example, cores: 8, thread_count: 40, replicas: 1000 })}>
          Fill in an example
        </button>
        <button type="submit" class="primary" disabled={busy.value}>
          {busy.value ? "Starting" : "Start"}
        </button>
      </div>
    </form>
  );
}

/** How big the program is before it is asked for; the API refuses what is too big, with the same numbers. */
function Expected() {
  const threads = expectedThreads(all.value);
  if (threads === undefined) return <span />;
  const cells = [all.value.cores, all.value.scheduler].reduce(
    (count: number, each) => count * (Array.isArray(each) ? each.length : 1),
    1,
  );
  const most = Number(all.value.max_threads);
  const runs = Number(all.value.replicas) * cells;
  return (
    <p class={threads > most ? "warn" : "soft"} aria-live="polite">
      About <span class="num">{compact(Math.round(threads))}</span> threads in a replica,{" "}
      <span class="num">{compact(Math.round(threads * runs))}</span> in all.
      {threads > most &&
        ` That is more than max threads (${integer(most)}): it will be refused. Lower depth, roots or children.`}
    </p>
  );
}
