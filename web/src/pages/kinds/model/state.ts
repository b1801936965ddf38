/** The displayed kind and the contents of its form, stored in the page's URL. */

import { computed, effect, signal } from "@preact/signals";
import { jobAddress } from "../../../kinds";
import { asProblem, type Problem, type Kind } from "../../../lib/api";
import { createHashState } from "../../../lib/hash";
import { loadKinds, watchJob } from "../../../lib/jobs";
import { flattenParameters, nestParameters } from "../../../lib/parameters";
import { createDraft, EMPTY_DRAFT, type Draft } from "../../../lib/draft";

export const state = createHashState({
  v: 1,
  kind: "",
  /** Job in a link of an earlier version. Redirects to the job's page. */
  job: "",
  /** Job whose parameters are copied into the form. */
  copy: "",
  name: "",
  tags: [] as readonly string[],
  set: [] as readonly string[],
  priority: "",
  device: "",
});

effect(() => {
  if (state.job.value) location.replace(jobAddress(state.job.value));
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

export const kindName = state.kind;
export const openKind = computed(() => allKinds.value?.find((each) => each.type === kindName.value));

export const draft = computed<Draft>(() => ({
  kind: kindName.value,
  name: state.name.value,
  tags: state.tags.value,
  parameters: nestParameters(state.set.value),
  priority: (["high", "low"] as const).find((each) => each === state.priority.value) ?? EMPTY_DRAFT.priority,
  device: (["cpu", "gpu"] as const).find((each) => each === state.device.value) ?? EMPTY_DRAFT.device,
}));

/** Store the form's contents. */
export function storeDraft({ name, tags, parameters, priority, device }: Draft): void {
  state.name.value = name;
  state.tags.value = tags;
  state.set.value = flattenParameters(parameters);
  state.priority.value = priority === EMPTY_DRAFT.priority ? "" : priority;
  state.device.value = device === EMPTY_DRAFT.device ? "" : device;
}

/** Copy the parameters of the job in the URL into the form, once they are known. */
export function copyParameters(): void {
  const job = state.copy.value && watchJob(state.copy.value).value;
  if (!job) return;
  state.copy.value = "";
  storeDraft(createDraft(job));
}

/** Show a kind; an empty name shows the list. */
export function showKind(name: string): void {
  state.kind.value = name;
  storeDraft(EMPTY_DRAFT);
  state.commit();
}
