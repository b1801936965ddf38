/** State of the cluster for the next job: pace, workers and waiting jobs. */

import { computed, signal } from "@preact/signals";
import { get, type Job, type Jobs } from "../../../lib/api";
import { snapshot } from "../../../lib/live";
import { paceOf, type Situation } from "./estimate";

/** Earlier jobs of this kind, requested once; the stream reports newer ones. */
const past = signal<readonly Job[]>([]);

export async function learnPace(): Promise<void> {
  try {
    past.value = (await get<Jobs>("/api/jobs", { type: "collatz", limit: 50 })).jobs;
  } catch {
    // without earlier jobs, only the stream's jobs are known
  }
}

/** Devices that compute kernels, which runners do not. */
const workers = computed(
  () => snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner").length,
);

export const situation = computed<Situation>(() => {
  const { jobs, queues } = snapshot.value;
  const known = new Map(past.value.map((job) => [job.job_id, job]));
  for (const [id, job] of jobs) known.set(id, job.value);
  return {
    pace: paceOf([...known.values()]),
    workers: workers.value,
    waiting: queues.reduce((sum, queue) => sum + queue.jobs, 0),
  };
});
