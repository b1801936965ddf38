/** Which jobs the workers are computing. Pure functions. */

import type { Worker } from "../../../lib/api";

type Computing = Pick<Worker, "live" | "job" | "running">;

/** Return True if a live worker is computing a job. */
export function isComputing(id: string, workers: readonly Computing[]): boolean {
  return workers.some(({ live, job, running = [] }) => live && (job === id || running.some(([each]) => each === id)));
}
