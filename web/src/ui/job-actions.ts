/** Actions on one or many jobs, with the API's responses. */

import type { Job } from "../lib/api";
import { deleteJob, controlJob, allowedVerbs, type JobVerb } from "../lib/jobs";
import { snapshot } from "../lib/live";
import { askConfirmation } from "./dialog";
import { showError, showToast } from "./toast";
import { isEnded } from "../lib/fleet";

export type JobAction = JobVerb | "delete";

const DONE_TEXTS: Record<JobAction, string> = {
  cancel: "Cancel requested",
  pause: "Paused",
  resume: "Resumed",
  retry: "Retried",
  delete: "Deleted",
};
export const ACTION_LABELS: Record<JobAction, string> = {
  cancel: "Cancel",
  pause: "Pause",
  resume: "Resume",
  retry: "Retry",
  delete: "Delete",
};
/** Maximum number of concurrent requests. */
const MAX_CONCURRENT = 6;

/** Return the actions that a job's state allows. */
export function allowedActions(job: Job): JobAction[] {
  return isEnded(job) || job.state === "blocked" ? [...allowedVerbs(job), "delete"] : allowedVerbs(job);
}

function selectAllowing(ids: readonly string[], action: JobAction): string[] {
  return ids.filter((id) => {
    const job = snapshot.peek().jobs.get(id)?.peek();
    return job !== undefined && allowedActions(job).includes(action);
  });
}

/** Return the actions that at least one of these jobs allows, with the number of jobs. */
export function countActions(ids: readonly string[]): [JobAction, number][] {
  const actions: JobAction[] = ["pause", "resume", "cancel", "retry", "delete"];
  return actions
    .map((action): [JobAction, number] => [action, selectAllowing(ids, action).length])
    .filter(([, count]) => count > 0);
}

function createQuestion(action: JobAction, ids: readonly string[]) {
  const isOne = ids.length === 1;
  const label = `${ACTION_LABELS[action]} ${isOne ? "job" : `${ids.length} jobs`}`;
  const deletion = isOne
    ? "The job and its result are deleted permanently."
    : "The jobs and their results are deleted permanently.";
  return {
    title: isOne ? `${label} ${ids[0]}?` : `${label}?`,
    text:
      action === "cancel"
        ? "Running units are stopped (programs have up to 25 s to end). " +
          "Finished units are kept; Retry continues from there."
        : deletion,
    buttonLabel: label,
    keepLabel: action === "cancel" ? "Keep running" : "Keep",
    isDangerous: true,
  };
}

async function performOnJob(id: string, action: JobAction): Promise<void> {
  if (action !== "delete") await controlJob(id, action);
  else await deleteJob(id);
}

/** Perform an action on the jobs that allow it, after a confirmation if it cannot be undone, and report the outcome. */
export async function performAction(action: JobAction, ids: readonly string[]): Promise<void> {
  const allowing = selectAllowing(ids, action);
  if (!allowing.length) return showToast(refusalText(action, ids));
  if ((action === "cancel" || action === "delete") && !(await askConfirmation(createQuestion(action, allowing))))
    return;
  const problems: unknown[] = [];
  const remaining = [...allowing];
  const work = async () => {
    for (let id = remaining.shift(); id !== undefined; id = remaining.shift())
      await performOnJob(id, action).catch((error: unknown) => problems.push(error));
  };
  await Promise.all(Array.from({ length: Math.min(MAX_CONCURRENT, allowing.length) }, work));
  reportOutcome(action, allowing, problems);
}

function refusalText(action: JobAction, ids: readonly string[]): string {
  const job =
    ids.length === 1
      ? snapshot
          .peek()
          .jobs.get(ids[0] ?? "")
          ?.peek()
      : undefined;
  return job
    ? `${ACTION_LABELS[action]}: job ${job.job_id} is ${job.state}`
    : `${ACTION_LABELS[action]}: no selected job allows this`;
}

function reportOutcome(action: JobAction, ids: readonly string[], problems: readonly unknown[]): void {
  const successCount = ids.length - problems.length;
  if (successCount && ids.length > 1) showToast(`${DONE_TEXTS[action]} ${successCount} jobs`);
  else if (successCount) showToast(`${DONE_TEXTS[action]}: job ${ids[0]}`);
  if (problems.length) showError(`${ACTION_LABELS[action]}: ${problems.length} failed, for example`, problems[0]);
}
