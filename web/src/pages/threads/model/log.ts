/** The log: slices that match a filter, and their texts. */

import type { TraceIndex } from "../../../timeline/sums";
import {
  BLOCKED,
  FIRST,
  JOIN,
  NO_CORE,
  NONE,
  RUN,
  STEAL,
  STOLEN,
  coreOf,
  threadName,
  threadPath,
  isDescendant,
  type Trace,
} from "../../../timeline/model";
import { childrenOf, type SpawnTree } from "../../../timeline/tree";

/** Maximum number of lines. */
export const MAX_LINES = 5000;

export type SliceTest = (slice: number) => boolean;

const FILTER_WORDS: Record<string, (trace: Trace) => SliceTest> = {
  stolen:
    ({ kind, flags }) =>
    (slice) =>
      kind[slice] === RUN && ((flags[slice] as number) & STOLEN) !== 0,
  steal:
    ({ kind }) =>
    (slice) =>
      kind[slice] === STEAL,
  block:
    ({ kind }) =>
    (slice) =>
      kind[slice] === BLOCKED,
  join:
    ({ kind }) =>
    (slice) =>
      kind[slice] === JOIN,
  start:
    ({ flags, kind }) =>
    (slice) =>
      kind[slice] === RUN && ((flags[slice] as number) & FIRST) !== 0,
  wait:
    ({ kind, wait }) =>
    (slice) =>
      kind[slice] === RUN && (wait[slice] as number) > 0,
};
export const FILTER_HELP = "core:3, depth:2, T3.0 (it and its descendants), start, stolen, steal, wait, block, join";

/** Return the thread at a path; NONE if it is not in the trace. */
export function threadAt(trace: Trace, tree: SpawnTree, path: string): number {
  const numbers = /^(?:T|Thread-)?(\d+(?:\.\d+)*)\**$/i.exec(path.trim())?.[1]?.split(".").map(Number);
  let at = NONE;
  for (const childNumber of numbers ?? []) {
    const next = childrenOf(tree, at).find((child) => trace.threads.number[child] === childNumber);
    if (next === undefined) return NONE;
    at = next;
  }
  return at;
}

/** Parse a filter to tests that must all pass, or return a message about an unknown word. */
export function parseFilter(trace: Trace, tree: SpawnTree, filter: string): SliceTest[] | string {
  const all: SliceTest[] = [];
  for (const word of filter.trim().split(/\s+/).filter(Boolean)) {
    const test = createTest(trace, tree, word);
    if (!test) return `"${word}" is not known: use ${FILTER_HELP}`;
    all.push(test);
  }
  return all;
}

function createTest(trace: Trace, tree: SpawnTree, word: string): SliceTest | undefined {
  const [, what, value] = /^(core|depth):(\d+)$/i.exec(word) ?? [];
  if (what?.toLowerCase() === "core") {
    const [from = 0, to = 0] = [trace.lanes[Number(value)], trace.lanes[Number(value) + 1]];
    return (slice) => slice >= from && slice < to;
  }
  if (what)
    return (slice) =>
      trace.thread[slice] !== NONE && trace.threads.depth[trace.thread[slice] as number] === Number(value);
  if (FILTER_WORDS[word.toLowerCase()]) return FILTER_WORDS[word.toLowerCase()]?.(trace);
  if (!/^T/i.test(word)) return undefined;
  const ancestor = threadAt(trace, tree, word);
  return (slice) =>
    ancestor !== NONE &&
    trace.thread[slice] !== NONE &&
    isDescendant(trace.threads, trace.thread[slice] as number, ancestor);
}

/**
 * Return the newest matching slices that started between t0 and t1, oldest first; `more` if older ones were omitted.
 */
export function findLines(
  trace: Trace,
  { order }: TraceIndex,
  t0: number,
  t1: number,
  tests: readonly SliceTest[],
  max = MAX_LINES,
): { slices: number[]; more: boolean } {
  const slices: number[] = [];
  for (let position = countStarted(trace, order, t1) - 1; position >= 0; position -= 1) {
    const slice = order[position] as number;
    if ((trace.start[slice] as number) < t0) break;
    if (!tests.every((test) => test(slice))) continue;
    if (slices.length === max) return { slices: slices.reverse(), more: true };
    slices.push(slice);
  }
  return { slices: slices.reverse(), more: false };
}

/** Count the slices that started at or before a time. */
function countStarted({ start }: Trace, order: Uint32Array, moment: number): number {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((start[order[middle] as number] as number) <= moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface Line {
  time: number;
  name: string;
  path: string;
  depth: number | undefined;
  text: string;
}

/** Format a duration in µs, ms or s with four digits. */
export function formatMicroseconds(value: number): string {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(4))}\u202fs`;
  if (value >= 1000) return `${Number((value / 1000).toPrecision(4))}\u202fms`;
  return `${Number(value.toPrecision(4))}\u202fµs`;
}

export function createLine(trace: Trace, slice: number): Line {
  const thread = trace.thread[slice] as number;
  const core = coreOf(trace, slice);
  const time = trace.start[slice] as number;
  const lasts = formatMicroseconds((trace.end[slice] as number) - time);
  if (thread === NONE)
    return { time, name: `core ${core}`, path: "", depth: undefined, text: describeSteal(trace, slice, lasts) };
  const depth = trace.threads.depth[thread] as number;
  const base = { time, name: threadName(trace.threads, thread), path: threadPath(trace.threads, thread), depth };
  const kind = trace.kind[slice];
  if (kind === BLOCKED) return { ...base, text: `waits for its children and holds core ${core} for ${lasts}` };
  if (kind === JOIN) return { ...base, text: `continues after its children on core ${core} for ${lasts}` };
  const flags = trace.flags[slice] as number;
  const waited = trace.wait[slice] as number;
  const requested = trace.threads.requestedChildren[thread] as number;
  const what = flags & FIRST ? "starts" : "goes on";
  const parts = [
    `${what} on core ${core} for ${lasts}`,
    flags & STOLEN ? "stolen" : "",
    waited ? `waited ${formatMicroseconds(waited)}` : "",
    flags & FIRST && requested ? `spawns ${requested}` : "",
  ];
  return { ...base, text: parts.filter(Boolean).join(", ") };
}

function describeSteal(trace: Trace, slice: number, lasts: string): string {
  const count = trace.attempts[slice] as number;
  const tries = `looks for work for ${lasts}, ${count} attempt${count === 1 ? "" : "s"}`;
  const victim = trace.victim[slice];
  return (trace.flags[slice] as number) & STOLEN && victim !== NO_CORE
    ? `${tries}, steals from core ${victim}`
    : `${tries}, finds nothing`;
}
