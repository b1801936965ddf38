/** Messages between the page and its web workers. */

import type { DelayWindow } from "./delays";
import type { Sample } from "./sample";
import type { Range } from "./view";
import type { Meeting, Trajectory } from "./trajectory";

export interface RequestBodies {
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

export interface ResponseBodies {
  window: DelayWindow;
  walk: Omit<Trajectory, "storedValues">;
  terms: { values: bigint[] };
  sample: Sample;
  table: { text: string };
}

export type Path = ResponseBodies["walk"];
export type { Meeting };

export type WorkerRequest = {
  [K in keyof RequestBodies]: { id: number; kind: K; body: RequestBodies[K] };
}[keyof RequestBodies];
export type WorkerResponse =
  | { id: number; body: ResponseBodies[keyof ResponseBodies]; error?: undefined }
  | { id: number; error: string };
