/** Messages in place of a missing picture. Pure functions. */

import type { Job, Problem } from "../../../lib/api";

export interface PictureStatus {
  text: string;
  /** True for an error, which is shown immediately and in red. */
  isError: boolean;
  /** True if a picture is expected. */
  isExpected: boolean;
}

interface KnownState {
  id: string;
  job: Pick<Job, "state" | "error"> | undefined;
  /** True if the job existed before, so that it must have been deleted. */
  wasKnown: boolean;
  /** Reason why the job is unknown. */
  jobProblem: Problem | undefined;
  /** Error of the result's request. */
  resultProblem: Problem | undefined;
  /** Replica that a worker is recording. */
  recording: number | undefined;
}

function createError(text: string): PictureStatus {
  return { text, isError: true, isExpected: false };
}

function explainUnknown({ id, wasKnown, jobProblem }: KnownState): PictureStatus {
  if (wasKnown) return createError(`Job ${id} and its result were deleted.`);
  if (jobProblem?.status === 404)
    return createError(`There is no job ${id}: it was deleted, or this address belongs to another cluster.`);
  if (jobProblem) return createError(`Job ${id} could not be read: ${jobProblem.detail}`);
  return { text: `Looking for job ${id}`, isError: false, isExpected: true };
}

/** Explain why there is no picture. */
export function pictureStatus(known: KnownState): PictureStatus {
  const { job, resultProblem: problem, recording } = known;
  if (!known.id) return { text: "The example is being loaded", isError: false, isExpected: true };
  if (!job) return explainUnknown(known);
  if (job.state === "failed") return createError(`The job failed: ${job.error}`);
  if (job.state === "cancelled")
    return {
      text: "The job was cancelled, so it has no picture. Retry continues where it stopped.",
      isError: false,
      isExpected: false,
    };
  if (job.state === "skipped")
    return {
      text: "The job was skipped, because a job before it failed or was cancelled.",
      isError: false,
      isExpected: false,
    };
  if (problem) return createError(`The result could not be loaded: ${problem.detail}`);
  if (recording !== undefined)
    return { text: `A worker records replica ${recording}`, isError: false, isExpected: true };
  return { text: "The picture appears when the result is ready", isError: false, isExpected: true };
}
