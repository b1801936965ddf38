/** Messages between the page and its web workers. */

import type { Window } from "./delays";
import type { Sample } from "./sample";
import type { Range } from "./view";
import type { Meeting, Trajectory } from "./walk";

export interface Asks {
  /** Exact delays of start, start + 1, … */
  window: { start: bigint; count: number };
  /** A complete trajectory, which the worker caches for `terms`. */
  walk: { n: bigint };
  /** Values at steps of a cached or new trajectory. */
  terms: { n: bigint; step: number; count: number };
  /** About `count` numbers distributed over a range. */
  sample: { range: Range; count: number; log: boolean };
  /** CSV lines with number, steps and greatest value. */
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
