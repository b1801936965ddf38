/** State of the cluster page, stored in its URL and frozen while the stream is paused. */

import { computed, effect, signal, type Signal } from "@preact/signals";
import { session, type Job } from "../../../lib/api";
import { createHashState } from "../../../lib/hash";
import { events, snapshot, type Fleet } from "../../../lib/live";
import { EMPTY_DRAFT, type Draft } from "../../../lib/submission";
import { matches, parse } from "./filter";

export const TABS = ["overview", "gpus", "hosts", "workers", "jobs", "workflows", "services", "monitoring"] as const;
export type TabName = (typeof TABS)[number];

export const state = createHashState({
  v: 1,
  tab: "overview",
  job: "",
  filter: "",
  range: 600,
  /** The open workflow, its selected action, and the appearance of its graph. */
  workflow: "",
  action: "",
  look: "graph",
  /** The highlighted path: "critical", "failure" or "none"; by default the path to a failure. */
  way: "",
  /** State of the actions that are not faint. */
  states: "",
  fold: true,
  /** First action of each unfolded group. */
  unfolded: [] as readonly string[],
  /** The open service, and the replica whose log is open. */
  service: "",
  replica: "",
});

export const tab = computed<TabName>(() => TABS.find((each) => each === state.tab.value) ?? "overview");

export function go(name: TabName): void {
  state.tab.value = name;
  state.commit();
}

/** Open a job next to the list; an empty ID closes it. */
export function open(id: string): void {
  if (id) state.tab.value = "jobs";
  state.job.value = id;
  state.commit();
}

/** Open a workflow; an empty ID opens the list. */
export function openWorkflow(id: string): void {
  state.tab.value = "workflows";
  state.workflow.value = id;
  state.action.value = state.way.value = state.states.value = "";
  state.unfolded.value = [];
  state.commit();
}

/** Open a service; an empty name opens the list. */
export function openService(name: string): void {
  state.tab.value = "services";
  state.service.value = name;
  state.replica.value = "";
  state.commit();
}

/** Open the log of a replica by its job ID; an empty ID closes it. */
export function openReplica(job: string): void {
  state.replica.value = job;
  state.commit();
}

/** True for a token that can only query models. */
export const asksOnly = computed(() => {
  const scopes = session.value?.scopes ?? ["read"];
  return scopes.includes("infer") && !scopes.includes("read") && !scopes.includes("admin");
});

// -- pause ----------------------------------------------------------------------------------------------------------

const frozen = signal<{ fleet: Fleet; events: typeof events.value } | undefined>(undefined);
/** True while the rows are frozen. */
export const paused = computed(() => frozen.value !== undefined);

function still(fleet: Fleet): Fleet {
  return { ...fleet, jobs: new Map([...fleet.jobs].map(([id, job]) => [id, signal(job.peek())])) };
}

export function togglePause(): void {
  frozen.value = frozen.peek() ? undefined : { fleet: still(snapshot.peek()), events: events.peek() };
}

export const fleet = computed<Fleet>(() => frozen.value?.fleet ?? snapshot.value);
export const happened = computed(() => frozen.value?.events ?? events.value);

// -- rows -----------------------------------------------------------------------------------------------------------

export const filter = computed(() => parse(state.filter.value));

function newestFirst(left: Job, right: Job): number {
  if (left.created !== right.created) return left.created < right.created ? 1 : -1;
  return left.job_id < right.job_id ? 1 : -1;
}

let before: readonly string[] = [];

/** IDs of the jobs that match the filter, newest first; the same array while they do not change. */
export const rows = computed<readonly string[]>(() => {
  const shown = [...fleet.value.jobs.values()].map((job) => job.value).filter((job) => matches(job, filter.value));
  const ids = shown.sort(newestFirst).map((job) => job.job_id);
  const same = ids.length === before.length && ids.every((id, place) => id === before[place]);
  if (!same) before = ids;
  return before;
});

export function jobOf(id: string): Signal<Job> | undefined {
  return fleet.value.jobs.get(id);
}

// -- selection ------------------------------------------------------------------------------------------------------

export const selected = signal<ReadonlySet<string>>(new Set());

export function select(id: string, on = !selected.peek().has(id)): void {
  const next = new Set(selected.peek());
  if (on) next.add(id);
  else next.delete(id);
  selected.value = next;
}

export function selectAll(ids: readonly string[]): void {
  selected.value = new Set(ids);
}

// Remove deleted jobs from the selection.
effect(() => {
  const gone = [...selected.value].filter((id) => !snapshot.value.jobs.has(id));
  if (gone.length) selected.value = new Set([...selected.value].filter((id) => !gone.includes(id)));
});

// -- the form -------------------------------------------------------------------------------------------------------

/** Draft of the new-job form while it is open. */
export const draft = signal<Draft | undefined>(undefined);

let kept: Draft = EMPTY_DRAFT;

/** Open the form with its last contents or with a given draft. */
export function compose(given?: Partial<Draft>): void {
  draft.value = given ? { ...EMPTY_DRAFT, ...given } : kept;
}

export function closeForm(keep = true): void {
  if (keep && draft.peek()) kept = draft.peek() as Draft;
  draft.value = undefined;
}
