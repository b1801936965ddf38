/** Colors of jobs. A job keeps its color everywhere on the page while the worker stream shows it. */

import { signal } from "@preact/signals";
import type { Stream } from "../../../lib/api";
import { assignPositions } from "./spans";

/** Color series without gray, which stands for several jobs. */
const SERIES = [1, 2, 3, 4, 7, 6, 8];
const GRAY = 5;

export interface JobColor {
  /** Number N of --series-N. */
  series: number;
  /** True if the job is hatched, because all colors are used. */
  isHatched: boolean;
}

const jobPositions = signal<ReadonlyMap<string, number>>(new Map());

/** Assign colors to the jobs of a new stream. */
export function assignColors(stream: Stream): void {
  jobPositions.value = assignPositions(stream, jobPositions.peek());
}

/** Return a job's color; gray for several jobs, undefined for a job outside the stream. */
export function jobColor(job: string): JobColor | undefined {
  if (!job) return { series: GRAY, isHatched: false };
  const position = jobPositions.value.get(job);
  if (position === undefined) return undefined;
  return {
    series: SERIES[position % SERIES.length] ?? GRAY,
    isHatched: Math.floor(position / SERIES.length) % 2 === 1,
  };
}
