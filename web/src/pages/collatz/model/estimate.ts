/** Estimated duration of a range, from earlier jobs. Pure functions. */

import type { Job } from "../../../lib/api";
import { formatCompact, formatRate, formatSeconds } from "../../../lib/format";

export interface MeasuredPace {
  /** Rate in numbers/s. */
  rate: number;
  /** ID of the measured job. */
  job: string;
  /** True if the job was so short that its startup dominated. */
  isShort: boolean;
}

type MeasuredJob = Pick<Job, "job_id" | "type" | "parameters" | "done" | "seconds">;

/** Duration in seconds above which a job's startup is negligible. */
const MIN_LONG_SECONDS = 2;

/** Return the best pace of jobs in a mode; paused jobs or shared lanes only reduce the pace. */
export function bestPace(jobs: readonly MeasuredJob[], mode = "statistics"): MeasuredPace | undefined {
  const paces = jobs
    .filter((job) => job.type === "collatz" && Number(job.done) > 0 && (job.seconds ?? 0) > 0)
    .filter(({ parameters }) => ((parameters as { mode?: string }).mode ?? "statistics") === mode)
    .map((job) => {
      const taken = job.seconds as number;
      return { rate: Number(job.done) / taken, job: job.job_id, isShort: taken < MIN_LONG_SECONDS };
    });
  const long = paces.filter((pace) => !pace.isShort);
  return (long.length ? long : paces).sort((one, other) => other.rate - one.rate)[0];
}

export interface ClusterState {
  pace: MeasuredPace | undefined;
  workers: number;
  /** Number of jobs that are already waiting. */
  waitingJobs: number;
}

/** Maximum estimate in seconds that a short job alone justifies. */
const MAX_GUESS_SECONDS = 10;

/** Describe the expected duration for a number of values. */
export function describeDuration(numbers: bigint, { pace, workers, waitingJobs: waiting }: ClusterState): string {
  const many = `${formatCompact(numbers)} number${numbers === 1n ? "" : "s"}`;
  if (!workers) return `${many}: no worker is live, so the job would wait`;
  const after = waiting ? `, after ${waiting} job${waiting === 1 ? "" : "s"} that wait${waiting === 1 ? "s" : ""}` : "";
  const time = pace ? Number(numbers) / pace.rate : Infinity;
  if (!pace || (pace.isShort && time > MAX_GUESS_SECONDS)) return `${many}, time not known yet${after}`;
  return `${many}: about ${time < 1 ? "a second" : formatSeconds(time)} on this cluster${after}`;
}

/** Describe the basis of the estimate. */
export function describeBasis({ pace }: ClusterState): string {
  if (!pace) return "no job of this kind has run here yet";
  return `at ${formatRate(pace.rate)}, as job ${pace.job} ran${pace.isShort ? ", a short one" : ""}`;
}
