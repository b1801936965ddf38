/** How long a range will take, from what the cluster has computed before. Pure. */

import type { Job } from "../../../lib/api";
import { compact, rate, seconds } from "../../../lib/format";

export interface Pace {
  /** Numbers/s. */
  rate: number;
  /** The job that showed it. */
  job: string;
  /** It was over so soon that starting it took a good part of its time. */
  short: boolean;
}

type Seen = Pick<Job, "job_id" | "type" | "parameters" | "state" | "done" | "seconds">;

/** Seconds from which on starting and ending a job no longer count. */
const LONG_S = 2;

/** The pace of the job that computed longest, of those of a mode that are done. */
export function paceOf(jobs: readonly Seen[], mode = "statistics"): Pace | undefined {
  const done = jobs.filter(
    (job) =>
      job.type === "collatz" &&
      job.state === "done" &&
      (job.seconds ?? 0) > 0 &&
      ((job.parameters as { mode?: string }).mode ?? "statistics") === mode,
  );
  const longest = done.sort((one, other) => (other.seconds ?? 0) - (one.seconds ?? 0))[0];
  if (!longest?.seconds) return undefined;
  const taken = longest.seconds;
  return { rate: Number(longest.done) / taken, job: longest.job_id, short: taken < LONG_S };
}

export interface Situation {
  pace: Pace | undefined;
  workers: number;
  /** Jobs that wait already. */
  waiting: number;
}

/** What to expect of so many numbers, in words. */
export function expectation(numbers: bigint, { pace, workers, waiting }: Situation): string {
  const many = `${compact(numbers)} number${numbers === 1n ? "" : "s"}`;
  if (!workers) return `${many}: no worker is live, the job would wait`;
  const after = waiting ? `, after ${waiting} job${waiting === 1 ? "" : "s"} that wait${waiting === 1 ? "s" : ""}` : "";
  if (!pace) return `${many}, time not known yet${after}`;
  const time = Number(numbers) / pace.rate;
  const about = time < 1 ? "about a second" : `${pace.short ? "at most " : ""}about ${seconds(time)}`;
  return `${many}: ${about} on this cluster, at ${rate(pace.rate)}${after}`;
}
