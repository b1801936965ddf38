/** Actions on one or many jobs, with the API's responses. */

import type { Job } from "../../../lib/api";
import { deleteJob, controlJob, allowedVerbs, type JobVerb } from "../../../lib/jobs";
import { snapshot } from "../../../lib/live";
import { askConfirmation } from "../../../ui/dialog";
import { showError, showToast } from "../../../ui/toast";
import { isEnded } from "../../../lib/fleet";
import { open, state } from "./state";

export type Act = JobVerb | "delete";

const PAST: Record<Act, string> = {
  cancel: "Cancel requested",
  pause: "Paused",
  resume: "Resumed",
  retry: "Retried",
  delete: "Deleted",
};
const TITLES: Record<Act, string> = {
  cancel: "Cancel",
  pause: "Pause",
  resume: "Resume",
  retry: "Retry",
  delete: "Delete",
};
/** Maximum number of concurrent requests. */
const AT_ONCE = 6;

/** Return the actions that a job's state allows. */
export function allowed(job: Job): Act[] {
  return isEnded(job) || job.state === "blocked" ? [...allowedVerbs(job), "delete"] : allowedVerbs(job);
}

function able(ids: readonly string[], act: Act): string[] {
  return ids.filter((id) => {
    const job = snapshot.peek().jobs.get(id)?.peek();
    return job !== undefined && allowed(job).includes(act);
  });
}

/** Return the actions that at least one of these jobs allows, with the number of jobs. */
export function offered(ids: readonly string[]): [Act, number][] {
  const acts: Act[] = ["pause", "resume", "cancel", "retry", "delete"];
  return acts.map((act): [Act, number] => [act, able(ids, act).length]).filter(([, count]) => count > 0);
}

function question(act: Act, ids: readonly string[]) {
  const what = ids.length === 1 ? `job ${ids[0]}` : `${ids.length} jobs`;
  const after =
    act === "cancel"
      ? "Its lanes stop within about a second. Committed results stay, and Retry continues from there."
      : "The job and its result are deleted permanently.";
  return {
    title: `${TITLES[act]} ${what}?`,
    text:
      ids.length === 1
        ? after
        : after.replace("Its", "Their").replace("The job and its result", "The jobs and their results"),
    buttonLabel: TITLES[act],
    isDangerous: true,
  };
}

async function one(id: string, act: Act): Promise<void> {
  if (act !== "delete") await controlJob(id, act);
  else await deleteJob(id);
}

/** Perform an action on the jobs that allow it, after a confirmation if it cannot be undone, and report the outcome. */
export async function perform(act: Act, ids: readonly string[]): Promise<void> {
  const able_ = able(ids, act);
  if (!able_.length) return showToast(refusal(act, ids));
  if ((act === "cancel" || act === "delete") && !(await askConfirmation(question(act, able_)))) return;
  const problems: unknown[] = [];
  const left = [...able_];
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift())
      await one(id, act).catch((error: unknown) => problems.push(error));
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, able_.length) }, work));
  report(act, able_, problems);
}

function refusal(act: Act, ids: readonly string[]): string {
  const job =
    ids.length === 1
      ? snapshot
          .peek()
          .jobs.get(ids[0] ?? "")
          ?.peek()
      : undefined;
  return job ? `${TITLES[act]}: job ${job.job_id} is ${job.state}` : `${TITLES[act]}: none of these jobs allows it`;
}

function report(act: Act, ids: readonly string[], problems: readonly unknown[]): void {
  const done = ids.length - problems.length;
  if (done && ids.length > 1) showToast(`${PAST[act]} ${done} jobs`);
  else if (done) showToast(`${PAST[act]}: job ${ids[0]}`);
  if (problems.length) showError(`${TITLES[act]}: ${problems.length} refused, such as`, problems[0]);
  if (act === "delete" && ids.includes(state.job.peek())) open("");
}
