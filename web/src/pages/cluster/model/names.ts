/** Names of jobs as people read them. */

import type { Job } from "../../../lib/api";
import { shortId, titleOf } from "../../../lib/naming";
import { fleet } from "./state";

/** Whether the page knows a job's title: what it does not know is named by kind and id. */
export function hasTitle(id: string): boolean {
  return fleet.value.jobs.has(id);
}

/** The title of a job by its id; its kind and short id where the page does not know the job. */
export function titleOfJob(id: string, kind: string | null | undefined): string {
  const job = fleet.value.jobs.get(id)?.peek();
  return job ? titleOf(job) : `${kind ?? "job"} ${shortId(id)}`;
}

/** Whether a job that has begun is computed by nobody now: it went back into its queue, and has its turn again. */
export function standsBy({ state, waiting_because: why, rate }: Job): boolean {
  return state === "running" && why !== null && rate === null && !why.startsWith("its last leases");
}
