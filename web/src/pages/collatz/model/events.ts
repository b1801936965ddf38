/** The page's event log, up to 5,000 lines. */

import { computed, signal } from "@preact/signals";
import { CLASSES, classOf } from "./fit";
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
  star: boolean;
}

/** True if the user wants to search the log, which may still be loading. */
export const finding = signal(false);

export const CAPACITY = 5000;
const ring = new Ring<Line>(CAPACITY);
let count = 0;
let queued = false;

/** All lines, oldest first. */
export const lines = signal<readonly Line[]>([]);
/** Number of lines dropped since the log was cleared. */
export const dropped = signal(0);

function publish(): void {
  queued = false;
  lines.value = ring.toArray();
}

export function log(kind: Line["kind"], text: string, about: { steps?: number; star?: boolean } = {}): void {
  if (ring.length === CAPACITY) dropped.value = dropped.peek() + 1;
  count += 1;
  ring.push({ id: count, time: Date.now(), kind, text, steps: about.steps, star: about.star ?? false });
  if (queued) return;
  queued = true;
  queueMicrotask(publish);
}

/** Clear the log and return its lines for Undo. */
export function clear(): readonly Line[] {
  const before = ring.toArray();
  ring.clear();
  dropped.value = 0;
  publish();
  return before;
}

export function restore(before: readonly Line[]): void {
  const since = ring.toArray();
  ring.clear();
  for (const line of [...before, ...since]) ring.push(line);
  publish();
}

/** Return True for long or high trajectories. */
export function isStar(n: bigint, steps: number, peak?: bigint): boolean {
  return steps > 100 || (peak !== undefined && peak > 100n * n);
}

/** Lines that match the filter. */
export const shown = computed(() => {
  const text = state.find.value.trim().toLowerCase();
  const length = CLASSES.findIndex(({ name }) => name === state.length.value);
  return lines.value.filter(
    (line) =>
      (!text || line.text.toLowerCase().includes(text)) &&
      (!state.stars.value || line.star) &&
      (length < 0 || (line.steps !== undefined && classOf(line.steps) === length)),
  );
});

export function asText(all: readonly Line[]): string {
  return all
    .map(
      (line) => `${new Date(line.time).toISOString()} ${line.star ? "*" : " "} ${line.kind.padEnd(6)} ${line.text}\n`,
    )
    .join("");
}
