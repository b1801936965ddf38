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

type Seen = Pick<Job, "job_id" | "type" | "parameters" | "done" | "seconds">;

/** Seconds from which on starting and ending a job no longer count. */
const LONG_S = 2;

/** The best pace of jobs of a mode: those that were paused, or shared the lanes, were slower than they could be. */
export function paceOf(jobs: readonly Seen[], mode = "statistics"): Pace | undefined {
  const paces = jobs
    .filter((job) => job.type === "collatz" && Number(job.done) > 0 && (job.seconds ?? 0) > 0)
    .filter(({ parameters }) => ((parameters as { mode?: string }).mode ?? "statistics") === mode)
    .map((job) => {
      const taken = job.seconds as number;
      return { rate: Number(job.done) / taken, job: job.job_id, short: taken < LONG_S };
    });
  const long = paces.filter((pace) => !pace.short);
  return (long.length ? long : paces).sort((one, other) => other.rate - one.rate)[0];
}

export interface Situation {
  pace: Pace | undefined;
  workers: number;
  /** Jobs that wait already. */
  waiting: number;
}

/** Of a short job alone nothing follows for one that would take longer. */
const GUESS_S = 10;

/** What to expect of so many numbers, in words. */
export function expectation(numbers: bigint, { pace, workers, waiting }: Situation): string {
  const many = `${compact(numbers)} number${numbers === 1n ? "" : "s"}`;
  if (!workers) return `${many}: no worker is live, the job would wait`;
  const after = waiting ? `, after ${waiting} job${waiting === 1 ? "" : "s"} that wait${waiting === 1 ? "s" : ""}` : "";
  const time = pace ? Number(numbers) / pace.rate : Infinity;
  if (!pace || (pace.short && time > GUESS_S)) return `${many}, time not known yet${after}`;
  return `${many}: about ${time < 1 ? "a second" : seconds(time)} on this cluster${after}`;
}

/** What the expectation rests on. */
export function ground({ pace }: Situation): string {
  if (!pace) return "no job of this kind has run here yet";
  return `at ${rate(pace.rate)}, as job ${pace.job} ran${pace.short ? ", a short one" : ""}`;
}
