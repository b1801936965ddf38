/** What the cluster is like for the next job: its pace, who computes, who waits. */

import { computed, signal } from "@preact/signals";
import { get, type Job, type Jobs } from "../../../lib/api";
import { snapshot } from "../../../lib/live";
import { paceOf, type Situation } from "./estimate";

/** Jobs of this kind, asked for once: the stream tells of newer ones. */
const past = signal<readonly Job[]>([]);

export async function learnPace(): Promise<void> {
  try {
    past.value = (await get<Jobs>("/api/jobs", { type: "collatz", limit: 50 })).jobs;
  } catch {
    // without them, what the stream tells is all that is known
  }
}

/** Devices that compute kernels; runners do not. */
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
