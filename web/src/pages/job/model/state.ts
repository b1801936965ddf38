/** The displayed job and the state of its page, stored in the page's URL. */

import { computed, signal } from "@preact/signals";
import { KINDS } from "../../../kinds";
import { asProblem, type Kind, type Problem } from "../../../lib/api";
import { createHashState } from "../../../lib/hash";
import { jobProblem, loadKinds, watchJob } from "../../../lib/jobs";

export const TABS = ["overview", "units", "logs", "result", "configuration"] as const;
export type TabName = (typeof TABS)[number];

export const state = createHashState({
  v: 1,
  job: "",
  tab: "overview",
  /** Unit with the open log, state filter of the table, and first unit of the table. */
  unit: -1,
  units: "",
  from: 0,
  /** Text, stream and unit state of the search in all logs. */
  search: "",
  stream: "all",
  of: "",
  /** Columns of the chart of returned values. */
  x: "",
  y: "",
  /** Jobs that are compared with this job. */
  with: [] as readonly string[],
});

const watchedJob = computed(() => (state.job.value ? watchJob(state.job.value) : undefined));
export const openJob = computed(() => watchedJob.value?.value);
/** Reason why the job does not exist. */
export const missingProblem = computed(() => (state.job.value ? jobProblem(state.job.value).value : undefined));

/** True if the units of the job run programs, so that they have logs. */
export const hasPrograms = computed(() => Boolean(KINDS[openJob.value?.type ?? ""]?.hasPrograms));
export const tabs = computed(() => TABS.filter((name) => name !== "logs" || hasPrograms.value));
export const tab = computed<TabName>(() => tabs.value.find((each) => each === state.tab.value) ?? "overview");

export function openTab(name: TabName): void {
  state.tab.value = name;
  state.commit();
}

/** Open the log of a unit in the tab Units; -1 closes it. */
export function openUnit(unit: number): void {
  state.tab.value = "units";
  state.unit.value = unit;
  state.commit();
}

/** Show the units in one state in the tab Units; an empty state shows all units. */
export function showUnits(name: string): void {
  state.tab.value = "units";
  state.units.value = name;
  state.from.value = 0;
  state.commit();
}

const kinds = signal<readonly Kind[]>([]);
export const kindsProblem = signal<Problem | undefined>(undefined);
/** Description of the job's kind; undefined until it is loaded. */
export const openKind = computed(() => kinds.value.find((each) => each.type === openJob.value?.type));

/** Load the kinds. */
export function fetchKinds(): void {
  loadKinds().then(
    (list) => (kinds.value = list),
    (error: unknown) => (kindsProblem.value = asProblem(error)),
  );
}
