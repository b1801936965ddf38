/** Display names of jobs. */

import type { Job } from "../../../lib/api";
import { shortId, jobTitle } from "../../../lib/naming";
import { fleet } from "./state";
import { isComputing } from "./computing";

/** Return True if the page knows a job's title. */
export function hasTitle(id: string): boolean {
  return fleet.value.jobs.has(id);
}

/** Return a job's title by its ID, or its kind and short ID if the job is unknown. */
export function knownJobTitle(id: string, kind: string | null | undefined): string {
  const job = fleet.value.jobs.get(id)?.peek();
  return job ? jobTitle(job) : `${kind ?? "job"} ${shortId(id)}`;
}

/** Return True if a started job is not being computed, because it returned to its queue. */
export function isWaitingAgain({ job_id: id, state, waiting_because: why, rate }: Job): boolean {
  if (state !== "running" || why === null || rate !== null || why.startsWith("its last leases")) return false;
  return !isComputing(id, fleet.value.workers);
}
