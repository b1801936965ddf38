/** Lines of a chart from the history of figures. Pure. */

import type { History } from "../../../lib/api";
import type { Series } from "../../../ui/chart";

/** More lines than these in one chart look alike; the rest is added up and labelled so. */
const MOST_LINES = 7;

/** Names of the figures with a prefix and a suffix: what stands between. */
export function named(history: History | undefined, prefix: string, suffix = ""): string[] {
  return Object.keys(history?.series ?? {})
    .filter((name) => name.startsWith(prefix) && name.endsWith(suffix))
    .map((name) => name.slice(prefix.length, name.length - suffix.length));
}

/** Those of these figures that were not 0 all the time. */
export function active(history: History | undefined, prefix: string): string[] {
  return named(history, prefix).filter((name) => highest(history?.series[prefix + name]?.mean ?? []) > 0);
}

function highest(values: readonly (number | null)[]): number {
  return values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

/**
 * Lines of all figures with a prefix and a suffix, in the order of their names. Where there are too many, those that
 * went highest have a line each and the rest is one sum; `quiet` keeps lines that were 0 all the time.
 */
export function lines(history: History | undefined, prefix: string, suffix = "", quiet = true): Series[] {
  const all = named(history, prefix, suffix)
    .map((label) => ({ label, values: history?.series[prefix + label + suffix]?.mean ?? [] }))
    .filter(({ values }) => quiet || highest(values) > 0);
  if (all.length <= MOST_LINES) return all;
  const most = [...all].sort((left, right) => highest(right.values) - highest(left.values)).slice(0, MOST_LINES - 1);
  const rest = all.filter((each) => !most.includes(each));
  return [
    ...all.filter((each) => most.includes(each)),
    { label: `${rest.length} more, summed`, values: summed(rest.map(({ values }) => values)) },
  ];
}

function summed(columns: readonly (readonly (number | null)[])[]): (number | null)[] {
  const length = Math.max(0, ...columns.map((column) => column.length));
  return Array.from({ length }, (_, place) => {
    const there = columns.map((column) => column[place] ?? null).filter((value) => value !== null);
    return there.length ? there.reduce((sum, value) => sum + value, 0) : null;
  });
}

/** One figure of the history as a line with its band. */
export function one(history: History | undefined, name: string, label: string): Series[] {
  const bins = history?.series[name];
  return bins ? [{ label, values: bins.mean, low: bins.min, high: bins.max }] : [];
}
