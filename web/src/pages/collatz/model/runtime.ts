/** Duration of a run's jobs. Pure functions. */

import type { Job } from "../../../lib/api";

type JobTimes = Pick<Job, "started" | "ended">;

/**
 * Return the seconds during which at least one job was started and not ended, up to `at` (cluster time in ms since
 * 1970). Pauses count, as in a job's `seconds`.
 */
export function runSeconds(jobs: readonly JobTimes[], at: number): number {
  const spans = jobs
    .flatMap(({ started, ended }) => (started ? [[Date.parse(started), ended ? Date.parse(ended) : at] as const] : []))
    .sort(([left], [right]) => left - right);
  let [sum, counted] = [0, 0];
  for (const [from, to] of spans) {
    sum += Math.max(0, to - Math.max(from, counted));
    counted = Math.max(counted, to);
  }
  return sum / 1000;
}
