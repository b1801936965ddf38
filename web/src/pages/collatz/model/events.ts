/** The page's event log, up to 5,000 lines. */

import { computed, signal } from "@preact/signals";
import { LENGTH_CLASSES, lengthClass } from "./fit";
import { Ring } from "../../../lib/ring";
import { state } from "./state";

export interface Line {
  id: number;
  /** Time in ms since 1970. */
  time: number;
  kind: "system" | "job" | "record" | "number";
  text: string;
  steps?: number | undefined;
  /** True for more than 100 steps or a peak above 100 n. */
  isStarred: boolean;
}

/** True if the user wants to search the log, which may still be loading. */
export const isSearching = signal(false);

export const CAPACITY = 5000;
const ring = new Ring<Line>(CAPACITY);
let count = 0;
let isPublishQueued = false;

/** All lines, oldest first. */
export const lines = signal<readonly Line[]>([]);
/** Number of lines dropped since the log was cleared. */
export const droppedCount = signal(0);

function publishLines(): void {
  isPublishQueued = false;
  lines.value = ring.toArray();
}

export function addLine(kind: Line["kind"], text: string, about: { steps?: number; star?: boolean } = {}): void {
  if (ring.length === CAPACITY) droppedCount.value = droppedCount.peek() + 1;
  count += 1;
  ring.push({ id: count, time: Date.now(), kind, text, steps: about.steps, isStarred: about.star ?? false });
  if (isPublishQueued) return;
  isPublishQueued = true;
  queueMicrotask(publishLines);
}

/** Clear the log and return its lines for Undo. */
export function clearLines(): readonly Line[] {
  const before = ring.toArray();
  ring.clear();
  droppedCount.value = 0;
  publishLines();
  return before;
}

export function restoreLines(before: readonly Line[]): void {
  const since = ring.toArray();
  ring.clear();
  for (const line of [...before, ...since]) ring.push(line);
  publishLines();
}

/** Return True for long or high trajectories. */
export function isStar(n: bigint, steps: number, peak?: bigint): boolean {
  return steps > 100 || (peak !== undefined && peak > 100n * n);
}

/** Lines that match the filter. */
export const matchingLines = computed(() => {
  const text = state.find.value.trim().toLowerCase();
  const length = LENGTH_CLASSES.findIndex(({ name }) => name === state.length.value);
  return lines.value.filter(
    (line) =>
      (!text || line.text.toLowerCase().includes(text)) &&
      (!state.stars.value || line.isStarred) &&
      (length < 0 || (line.steps !== undefined && lengthClass(line.steps) === length)),
  );
});

export function formatLines(all: readonly Line[]): string {
  return all
    .map(
      (line) =>
        `${new Date(line.time).toISOString()} ${line.isStarred ? "*" : " "} ${line.kind.padEnd(6)} ${line.text}\n`,
    )
    .join("");
}
