/** State of the cluster page, stored in its URL and frozen while the stream is paused. */

import { computed, effect, signal, type Signal } from "@preact/signals";
import { jobAddress } from "../../../kinds";
import type { Job } from "../../../lib/api";
import { createHashState } from "../../../lib/hash";
import { events, snapshot, type Fleet } from "../../../lib/live";
import { EMPTY_DRAFT, type Draft } from "../../../lib/draft";
import { matchesFilter, parseFilter } from "./filter";

export const TABS = [
  "overview",
  "gpus",
  "hosts",
  "workers",
  "jobs",
  "workflows",
  "services",
  "monitoring",
  "admin",
] as const;
export type TabName = (typeof TABS)[number];

export const state = createHashState({
  v: 1,
  tab: "overview",
  /** Job in a link of an earlier version. Redirects to the job's page. */
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
  /** The open list of the part Admin. */
  list: "",
});

effect(() => {
  if (state.job.value) location.replace(jobAddress(state.job.value));
});

export const tab = computed<TabName>(() => TABS.find((each) => each === state.tab.value) ?? "overview");

export function openTab(name: TabName): void {
  state.tab.value = name;
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

// -- pause ----------------------------------------------------------------------------------------------------------

const frozenState = signal<{ fleet: Fleet; events: typeof events.value } | undefined>(undefined);
/** True while the rows are frozen. */
export const isPaused = computed(() => frozenState.value !== undefined);

function copyFleet(fleet: Fleet): Fleet {
  return { ...fleet, jobs: new Map([...fleet.jobs].map(([id, job]) => [id, signal(job.peek())])) };
}

export function togglePause(): void {
  frozenState.value = frozenState.peek() ? undefined : { fleet: copyFleet(snapshot.peek()), events: events.peek() };
}

export const fleet = computed<Fleet>(() => frozenState.value?.fleet ?? snapshot.value);
export const recentEvents = computed(() => frozenState.value?.events ?? events.value);

// -- rows -----------------------------------------------------------------------------------------------------------

export const filter = computed(() => parseFilter(state.filter.value));

function compareNewest(left: Job, right: Job): number {
  if (left.created !== right.created) return left.created < right.created ? 1 : -1;
  return left.job_id < right.job_id ? 1 : -1;
}

let previousRows: readonly string[] = [];

/** IDs of the jobs that match the filter, newest first; the same array while they do not change. */
export const jobRows = computed<readonly string[]>(() => {
  const matching = [...fleet.value.jobs.values()]
    .map((job) => job.value)
    .filter((job) => matchesFilter(job, filter.value));
  const ids = matching.sort(compareNewest).map((job) => job.job_id);
  const same = ids.length === previousRows.length && ids.every((id, index) => id === previousRows[index]);
  if (!same) previousRows = ids;
  return previousRows;
});

export function getJob(id: string): Signal<Job> | undefined {
  return fleet.value.jobs.get(id);
}

// -- selection ------------------------------------------------------------------------------------------------------

export const selectedJobs = signal<ReadonlySet<string>>(new Set());

export function selectJob(id: string, on = !selectedJobs.peek().has(id)): void {
  const next = new Set(selectedJobs.peek());
  if (on) next.add(id);
  else next.delete(id);
  selectedJobs.value = next;
}

export function selectJobs(ids: readonly string[]): void {
  selectedJobs.value = new Set(ids);
}

// Remove deleted jobs from the selection.
effect(() => {
  const gone = [...selectedJobs.value].filter((id) => !snapshot.value.jobs.has(id));
  if (gone.length) selectedJobs.value = new Set([...selectedJobs.value].filter((id) => !gone.includes(id)));
});

/** True while the dialog for a new workflow is open. */
export const isWritingWorkflow = signal(false);

// -- the form -------------------------------------------------------------------------------------------------------

/** Draft of the new-job form while it is open. */
export const draft = signal<Draft | undefined>(undefined);

let lastDraft: Draft = EMPTY_DRAFT;

/** Open the form with its last contents or with a given draft. */
export function openForm(fields?: Partial<Draft>): void {
  draft.value = fields ? { ...EMPTY_DRAFT, ...fields } : lastDraft;
}

export function closeForm(keep = true): void {
  if (keep && draft.peek()) lastDraft = draft.peek() as Draft;
  draft.value = undefined;
}
