/** Descriptions of workers. Pure functions. */

import type { Worker } from "../../../lib/api";

type Known = Pick<Worker, "live" | "draining" | "state" | "cordoned">;

/** Return the displayed state: draining as soon as it is requested, and cordoned if the worker accepts no work. */
export function shownState({ live, draining, state, cordoned }: Known): string {
  if (live && cordoned) return "cordoned";
  return live && draining && state !== "drained" ? "draining" : state;
}

/** Return True if a worker accepts new work. */
export function takesWork({ live, draining, state, cordoned }: Known): boolean {
  return live && !draining && !cordoned && state !== "parked" && state !== "starting";
}

/** Return the sort order: lost workers first, most recent first. */
export function urgency(worker: Known): number {
  if (worker.state === "lost") return 0;
  if (!worker.live) return 3;
  return takesWork(worker) ? 2 : 1;
}

const HELD = ["starting", "parked", "draining", "drained", "cordoned"];

/**
 * Describe the number of working workers, such as `2 of 3` or `0 of 1, 1 drained`. `configured` is the intended number.
 */
export function workersText(workers: readonly Known[], configured: number | null): string {
  const live = workers.filter((worker) => worker.live);
  const able = live.filter(takesWork).length;
  const all = Math.max(configured ?? 0, live.length);
  const held = HELD.map((name): [string, number] => [
    name,
    live.filter((worker) => shownState(worker) === name).length,
  ]).filter(([, count]) => count);
  const lost = workers.filter((worker) => worker.state === "lost").length;
  const first = able === all && !configured ? String(able) : `${able} of ${all}`;
  return [first, ...held.map(([name, count]) => `${count} ${name}`), ...(lost ? [`${lost} lost`] : [])].join(", ");
}
