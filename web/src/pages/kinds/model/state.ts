/** The displayed kind and job, stored in the page's URL. */

import { computed, signal } from "@preact/signals";
import { asProblem, type Problem, type Kind } from "../../../lib/api";
import { createHashState } from "../../../lib/hash";
import { loadKinds, jobProblem, watchJob } from "../../../lib/jobs";
import { flattenParameters, nestParameters } from "../../../lib/parameters";
import { EMPTY_DRAFT, type Draft } from "../../../lib/draft";

export const state = createHashState({
  v: 1,
  kind: "",
  job: "",
  set: [] as readonly string[],
  priority: "",
  device: "",
  /** For jobs with programs: unit with the open log, state filter of the table, and first unit of the table. */
  unit: -1,
  units: "",
  from: 0,
});

/** All kinds; undefined until loaded. */
export const allKinds = signal<readonly Kind[] | undefined>(undefined);
export const kindsProblem = signal<Problem | undefined>(undefined);

/** Load the kinds. */
export function fetchKinds(): void {
  kindsProblem.value = undefined;
  loadKinds().then(
    (list) => (allKinds.value = list),
    (error: unknown) => (kindsProblem.value = asProblem(error)),
  );
}

const watchedJob = computed(() => (state.job.value ? watchJob(state.job.value) : undefined));
export const openJob = computed(() => watchedJob.value?.value);
/** Reason why the job does not exist. */
export const missingProblem = computed(() => (state.job.value ? jobProblem(state.job.value).value : undefined));

/** The displayed kind, or the kind of the displayed job. */
export const kindName = computed(() => openJob.value?.type ?? state.kind.value);
export const openKind = computed(() => allKinds.value?.find((each) => each.type === kindName.value));

export const draft = computed<Draft>(() => ({
  kind: kindName.value,
  parameters: nestParameters(state.set.value),
  priority: (["high", "low"] as const).find((each) => each === state.priority.value) ?? EMPTY_DRAFT.priority,
  device: (["cpu", "gpu"] as const).find((each) => each === state.device.value) ?? EMPTY_DRAFT.device,
}));

/** Store the form's contents. */
export function storeDraft({ parameters, priority, device }: Draft): void {
  state.set.value = flattenParameters(parameters);
  state.priority.value = priority === EMPTY_DRAFT.priority ? "" : priority;
  state.device.value = device === EMPTY_DRAFT.device ? "" : device;
}

/** Show a kind; an empty name shows the list. */
export function showKind(name: string): void {
  state.kind.value = name;
  state.job.value = "";
  storeDraft(EMPTY_DRAFT);
  state.commit();
}

/** Show a job of the kind; an empty ID shows none. */
export function showJob(id: string): void {
  state.kind.value = kindName.peek();
  state.job.value = id;
  state.unit.value = -1;
  state.units.value = "";
  state.from.value = 0;
  state.commit();
}
