/** State of the cluster page: kept in its address, and frozen while the stream is paused. */

import { computed, effect, signal, type Signal } from "@preact/signals";
import { who, type Job } from "../../../lib/api";
import { hashState } from "../../../lib/hash";
import { events, snapshot, type Fleet } from "../../../lib/live";
import { EMPTY, type Draft } from "../../../lib/submission";
import { matches, parse } from "./filter";

export const TABS = ["overview", "gpus", "hosts", "workers", "jobs", "workflows", "services", "monitoring"] as const;
export type TabName = (typeof TABS)[number];

export const state = hashState({
  v: 1,
  tab: "overview",
  job: "",
  filter: "",
  range: 600,
  /** The workflow that is open, its action, and how its graph is shown. */
  workflow: "",
  action: "",
  look: "graph",
  /** The way that is lit: "critical", "failure" or "none"; by default that to a failure. */
  way: "",
  /** The state of actions that are not faint. */
  states: "",
  fold: true,
  /** The first action of each group that is unfolded. */
  unfolded: [] as readonly string[],
  /** The service that is open, and the replica whose log is. */
  service: "",
  replica: "",
});

export const tab = computed<TabName>(() => TABS.find((each) => each === state.tab.value) ?? "overview");

export function go(name: TabName): void {
  state.tab.value = name;
  state.commit();
}

/** Opens a job beside the list; an empty id closes it. */
export function open(id: string): void {
  if (id) state.tab.value = "jobs";
  state.job.value = id;
  state.commit();
}

/** Opens a workflow, or with an empty id the list of all. */
export function openWorkflow(id: string): void {
  state.tab.value = "workflows";
  state.workflow.value = id;
  state.action.value = state.way.value = state.states.value = "";
  state.unfolded.value = [];
  state.commit();
}

/** Opens a service, or with an empty name the list of all. */
export function openService(name: string): void {
  state.tab.value = "services";
  state.service.value = name;
  state.replica.value = "";
  state.commit();
}

/** Opens the log of a replica by its job; an empty id closes it. */
export function openReplica(job: string): void {
  state.replica.value = job;
  state.commit();
}

/** True for a token that may ask models, and look at nothing. */
export const asksOnly = computed(() => {
  const scopes = who.value?.scopes ?? ["read"];
  return scopes.includes("infer") && !scopes.includes("read") && !scopes.includes("admin");
});

// -- pause ----------------------------------------------------------------------------------------------------------

const frozen = signal<{ fleet: Fleet; events: typeof events.value } | undefined>(undefined);
/** True while rows stay as they were. */
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

/** Ids of the jobs that the filter lets through, newest first; the same array while they are the same. */
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

// A job that is gone is selected no longer.
effect(() => {
  const gone = [...selected.value].filter((id) => !snapshot.value.jobs.has(id));
  if (gone.length) selected.value = new Set([...selected.value].filter((id) => !gone.includes(id)));
});

// -- the form -------------------------------------------------------------------------------------------------------

/** The form for a new job while it is open. */
export const draft = signal<Draft | undefined>(undefined);

let kept: Draft = EMPTY;

/** Opens the form as it was left, or filled in. */
export function compose(given?: Partial<Draft>): void {
  draft.value = given ? { ...EMPTY, ...given } : kept;
}

export function closeForm(keep = true): void {
  if (keep && draft.peek()) kept = draft.peek() as Draft;
  draft.value = undefined;
}
