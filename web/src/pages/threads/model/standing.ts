/** Messages in place of a missing picture. Pure functions. */

import type { Job, Problem } from "../../../lib/api";

export interface Standing {
  text: string;
  /** True for an error, which is shown immediately and in red. */
  bad: boolean;
  /** True if a picture is expected. */
  coming: boolean;
}

interface Known {
  id: string;
  job: Pick<Job, "state" | "error"> | undefined;
  /** True if the job existed before, so that it must have been deleted. */
  seen: boolean;
  /** Reason why the job is unknown. */
  trouble: Problem | undefined;
  /** Error of the result's request. */
  problem: Problem | undefined;
  /** Replica that a worker is recording. */
  recording: number | undefined;
}

function ill(text: string): Standing {
  return { text, bad: true, coming: false };
}

function unknown({ id, seen, trouble }: Known): Standing {
  if (seen) return ill(`Job ${id} and its result were deleted.`);
  if (trouble?.status === 404)
    return ill(`There is no job ${id}: it was deleted, or this address belongs to another cluster.`);
  if (trouble) return ill(`Job ${id} could not be read: ${trouble.detail}`);
  return { text: `Looking for job ${id}`, bad: false, coming: true };
}

/** Explain why there is no picture. */
export function standing(known: Known): Standing {
  const { job, problem, recording } = known;
  if (!known.id) return { text: "The example is being loaded", bad: false, coming: true };
  if (!job) return unknown(known);
  if (job.state === "failed") return ill(`The job failed: ${job.error}`);
  if (job.state === "cancelled")
    return {
      text: "The job was cancelled, so it has no picture. Retry continues where it stopped.",
      bad: false,
      coming: false,
    };
  if (job.state === "skipped")
    return { text: "The job was skipped, because a job before it failed or was cancelled.", bad: false, coming: false };
  if (problem) return ill(`The result could not be loaded: ${problem.detail}`);
  if (recording !== undefined) return { text: `A worker records replica ${recording}`, bad: false, coming: true };
  return { text: "The picture appears when the result is ready", bad: false, coming: true };
}
