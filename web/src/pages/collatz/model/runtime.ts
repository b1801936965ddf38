/** How long the jobs of a run have taken. Pure. */

import type { Job } from "../../../lib/api";

type Times = Pick<Job, "started" | "ended">;

/**
 * Seconds in which at least one of the jobs had started and had not ended, up to `at`: ms since 1970 of the
 * cluster's clock, whose times these are. Pauses count, as they do in a job's own `seconds`.
 */
export function runtime(jobs: readonly Times[], at: number): number {
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
