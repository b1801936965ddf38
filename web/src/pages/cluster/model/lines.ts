/** Lines of a chart from the history of measurements. Pure functions. */

import type { History } from "../../../lib/api";
import type { Series } from "../../../ui/chart";

/** Maximum number of separate lines in a chart; the others are summed. */
const MAX_LINES = 7;

/** Return the middle parts of measurement names with a prefix and a suffix. */
export function middleNames(history: History | undefined, prefix: string, suffix = ""): string[] {
  return Object.keys(history?.series ?? {})
    .filter((name) => name.startsWith(prefix) && name.endsWith(suffix))
    .map((name) => name.slice(prefix.length, name.length - suffix.length));
}

/** Return the measurements with a prefix that were not always 0. */
export function activeNames(history: History | undefined, prefix: string): string[] {
  return middleNames(history, prefix).filter((name) => maxValue(history?.series[prefix + name]?.mean ?? []) > 0);
}

function maxValue(values: readonly (number | null)[]): number {
  return values.reduce<number>((max, value) => Math.max(max, value ?? 0), 0);
}

/**
 * Return the lines of all measurements with a prefix and a suffix, ordered by name. If there are too many, the highest
 * have separate lines and the rest is summed. `quiet` keeps lines that were always 0.
 */
export function createLines(history: History | undefined, prefix: string, suffix = "", quiet = true): Series[] {
  const all = middleNames(history, prefix, suffix)
    .map((label) => ({ label, values: history?.series[prefix + label + suffix]?.mean ?? [] }))
    .filter(({ values }) => quiet || maxValue(values) > 0);
  if (all.length <= MAX_LINES) return all;
  const max = [...all].sort((left, right) => maxValue(right.values) - maxValue(left.values)).slice(0, MAX_LINES - 1);
  const rest = all.filter((each) => !max.includes(each));
  return [
    ...all.filter((each) => max.includes(each)),
    { label: `${rest.length} more, summed`, values: sumColumns(rest.map(({ values }) => values)) },
  ];
}

function sumColumns(columns: readonly (readonly (number | null)[])[]): (number | null)[] {
  const length = Math.max(0, ...columns.map((column) => column.length));
  return Array.from({ length }, (_, index) => {
    const there = columns.map((column) => column[index] ?? null).filter((value) => value !== null);
    return there.length ? there.reduce((sum, value) => sum + value, 0) : null;
  });
}

/** Return one measurement of the history as a line with its range. */
export function createLine(history: History | undefined, name: string, label: string): Series[] {
  const bins = history?.series[name];
  return bins ? [{ label, values: bins.mean, low: bins.min, high: bins.max }] : [];
}
