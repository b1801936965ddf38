/** Descriptions of workers. Pure functions. */

import type { Worker } from "../../../lib/api";

type WorkerCondition = Pick<Worker, "live" | "draining" | "state" | "cordoned">;

/** Return the displayed state: draining as soon as it is requested, and cordoned if the worker accepts no work. */
export function displayedState({ live, draining, state, cordoned }: WorkerCondition): string {
  if (live && cordoned) return "cordoned";
  return live && draining && state !== "drained" ? "draining" : state;
}

/** Return True if a worker accepts new work. */
export function acceptsWork({ live, draining, state, cordoned }: WorkerCondition): boolean {
  return live && !draining && !cordoned && state !== "parked" && state !== "starting";
}

/** Return the sort order: lost workers first, most recent first. */
export function sortOrder(worker: WorkerCondition): number {
  if (worker.state === "lost") return 0;
  if (!worker.live) return 3;
  return acceptsWork(worker) ? 2 : 1;
}

const PAUSED_STATES = ["starting", "parked", "draining", "drained", "cordoned"];

/**
 * Describe the number of working workers, such as `2 of 3` or `0 of 1, 1 drained`. `configured` is the intended number.
 */
export function describeWorkers(workers: readonly WorkerCondition[], configured: number | null): string {
  const live = workers.filter((worker) => worker.live);
  const able = live.filter(acceptsWork).length;
  const all = Math.max(configured ?? 0, live.length);
  const held = PAUSED_STATES.map((name): [string, number] => [
    name,
    live.filter((worker) => displayedState(worker) === name).length,
  ]).filter(([, count]) => count);
  const lost = workers.filter((worker) => worker.state === "lost").length;
  const first = able === all && !configured ? String(able) : `${able} of ${all}`;
  return [first, ...held.map(([name, count]) => `${count} ${name}`), ...(lost ? [`${lost} lost`] : [])].join(", ");
}
