/** Descriptions of workers. Pure functions. */

import type { Worker } from "../../../lib/api";

type WorkerCondition = Pick<Worker, "live" | "draining" | "state" | "cordoned" | "compiling">;

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

/** Describe the kernels that a live worker is compiling, such as `compiling collatz, thread`; empty if none. */
export function describeCompilation({ live, compiling }: WorkerCondition): string {
  return live && compiling?.length ? `compiling ${compiling.join(", ")}` : "";
}

/** Describe a worker, such as `idle` or `idle, compiling collatz`. */
export function describeState(worker: WorkerCondition): string {
  return [displayedState(worker), describeCompilation(worker)].filter(Boolean).join(", ");
}

const PAUSED_STATES = ["starting", "parked", "draining", "drained", "cordoned"];

/**
 * Describe the number of working workers, such as `2 of 3, 1 compiling` or `0 of 1, 1 drained`. `configured` is the
 * intended number.
 */
export function describeWorkers(workers: readonly WorkerCondition[], configured: number | null): string {
  const live = workers.filter((worker) => worker.live);
  const able = live.filter(acceptsWork).length;
  const all = Math.max(configured ?? 0, live.length);
  const held = PAUSED_STATES.map((name): [string, number] => [
    name,
    live.filter((worker) => displayedState(worker) === name).length,
  ]);
  const compiling = live.filter(describeCompilation).length;
  const lost = workers.filter((worker) => worker.state === "lost").length;
  const counts: [string, number][] = [...held, ["compiling", compiling], ["lost", lost]];
  const first = able === all && !configured ? String(able) : `${able} of ${all}`;
  const present = counts.filter(([, count]) => count).map(([name, count]) => `${count} ${name}`);
  return [first, ...present].join(", ");
}
