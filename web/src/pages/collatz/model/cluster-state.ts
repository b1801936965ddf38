/** State of the cluster for the next job: pace, workers and waiting jobs. */

import { computed, signal } from "@preact/signals";
import { get, type Job, type Jobs } from "../../../lib/api";
import { snapshot } from "../../../lib/live";
import { bestPace, type ClusterState } from "./estimate";

/** Earlier jobs of this kind, requested once; the stream reports newer ones. */
const earlierJobs = signal<readonly Job[]>([]);

export async function loadEarlierJobs(): Promise<void> {
  try {
    earlierJobs.value = (await get<Jobs>("/api/jobs", { type: "collatz", limit: 50 })).jobs;
  } catch {
    // without earlier jobs, only the stream's jobs are known
  }
}

/** Devices that compute kernels, which runners do not. */
const computeWorkers = computed(
  () => snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner").length,
);

export const knownJobs = computed<readonly Job[]>(() => {
  const known = new Map(earlierJobs.value.map((job) => [job.job_id, job]));
  for (const [id, job] of snapshot.value.jobs) known.set(id, job.value);
  return [...known.values()];
});

export const clusterState = computed<ClusterState>(() => {
  return {
    pace: bestPace(knownJobs.value),
    workers: computeWorkers.value,
    waitingJobs: snapshot.value.queues.reduce((sum, queue) => sum + queue.jobs, 0),
  };
});
