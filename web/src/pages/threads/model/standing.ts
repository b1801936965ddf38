/** What stands in place of the picture while there is none, in words. Pure. */

import type { Job, Problem } from "../../../lib/api";

export interface Standing {
  text: string;
  /** Something went wrong: said at once, and in red. */
  bad: boolean;
  /** A picture will come. */
  coming: boolean;
}

interface Known {
  id: string;
  job: Pick<Job, "state" | "error"> | undefined;
  /** The job was seen before: what is not known now was deleted. */
  seen: boolean;
  /** Why the job is not known. */
  trouble: Problem | undefined;
  /** Why its result did not come. */
  problem: Problem | undefined;
  /** The replica that a worker records now. */
  recording: number | undefined;
}

function ill(text: string): Standing {
  return { text, bad: true, coming: false };
}

function unknown({ id, seen, trouble }: Known): Standing {
  if (seen) return ill(`Job ${id} was deleted, and its result with it.`);
  if (trouble?.status === 404)
    return ill(`There is no job ${id}: it was deleted, or its address is of another cluster.`);
  if (trouble) return ill(`Job ${id} could not be read: ${trouble.detail}`);
  return { text: `Looking for job ${id}`, bad: false, coming: true };
}

/** Says why there is no picture. */
export function standing(known: Known): Standing {
  const { job, problem, recording } = known;
  if (!known.id) return { text: "The example is being loaded", bad: false, coming: true };
  if (!job) return unknown(known);
  if (job.state === "failed") return ill(`The job failed: ${job.error}`);
  if (job.state === "cancelled")
    return {
      text: "The job was cancelled, so there is no picture of it. Retry goes on where it stopped.",
      bad: false,
      coming: false,
    };
  if (job.state === "skipped")
    return { text: "The job was skipped: one that it comes after did not end well.", bad: false, coming: false };
  if (problem) return ill(`The result could not be loaded: ${problem.detail}`);
  if (recording !== undefined) return { text: `A worker records replica ${recording}`, bad: false, coming: true };
  return { text: "The picture comes with the result", bad: false, coming: true };
}
