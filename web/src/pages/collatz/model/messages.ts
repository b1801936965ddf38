/** Messages between the page and its web worker. */

import type { Window } from "./delays";
import type { Sample } from "./sample";
import type { Range } from "./view";
import type { Meeting, Trajectory } from "./walk";

export interface Asks {
  /** Exact delays of start, start + 1, … */
  window: { start: bigint; count: number };
  /** A whole trajectory; the worker keeps it for `terms` under its digits. */
  walk: { n: bigint };
  /** Values at steps of a trajectory that was walked before or is walked now. */
  terms: { n: bigint; step: number; count: number };
  /** About `count` numbers spread over a range. */
  sample: { range: Range; count: number; log: boolean };
  /** Lines of a CSV: number, steps, greatest value. */
  table: { start: bigint; count: number };
}

export interface Answers {
  window: Window;
  walk: Omit<Trajectory, "kept">;
  terms: { values: bigint[] };
  sample: Sample;
  table: { text: string };
}

export type Path = Answers["walk"];
export type { Meeting };

export type Ask = { [K in keyof Asks]: { id: number; kind: K; body: Asks[K] } }[keyof Asks];
export type Answer = { id: number; body: Answers[keyof Answers]; error?: undefined } | { id: number; error: string };
