/** Numbers that units returned, as columns. Pure functions, and the requests for them. */

import type { Unit } from "../../../lib/api";
import type { Bin } from "../../../ui/bins";
import { isStoredFile, loadUnits, PAGE_SIZE } from "./units";

/** Maximum number of units whose values are loaded. */
export const MAX_UNITS = 10_000;
/** Maximum number of columns. */
const MAX_COLUMNS = 40;
const BIN_COUNT = 30;

export interface ValueTable {
  units: readonly number[];
  /** Values by column, in the order of the units; null: not a number. */
  columns: ReadonlyMap<string, readonly (number | null)[]>;
}

/** Columns about each run, which are not returned values. */
export const RUN_COLUMNS = ["run time (s)", "attempts"] as const;

/** Load the finished units of a job, up to MAX_UNITS. */
export async function loadFinishedUnits(job: string, signal: AbortSignal): Promise<Unit[]> {
  const rows: Unit[] = [];
  for (let from = 0; rows.length < MAX_UNITS; ) {
    const page = await loadUnits(job, from, PAGE_SIZE, "done", signal);
    rows.push(...page.units);
    const last = page.units.at(-1);
    if (page.units.length < PAGE_SIZE || !last) break;
    from = last.unit + 1;
  }
  return rows;
}

function asNumber(value: unknown): number | null {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value === "boolean") return Number(value);
  return typeof value === "string" && /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i.test(value) ? Number(value) : null;
}

/** Return the numbers in a value by name, with dots between the names of nested fields. */
export function findNumbers(value: unknown, name = ""): [name: string, value: number][] {
  if (typeof value === "object" && value !== null && !isStoredFile(value))
    return Object.entries(value).flatMap(([key, inner]) => findNumbers(inner, name ? `${name}.${key}` : key));
  const number = asNumber(value);
  return number === null ? [] : [[name || "value", number]];
}

/** Return the returned numbers, the run times and the attempts of units as columns. */
export function createValueTable(units: readonly Unit[]): ValueTable {
  const columns = new Map<string, (number | null)[]>();
  const put = (name: string, row: number, value: number | null) => {
    if (!columns.has(name) && columns.size >= MAX_COLUMNS) return;
    const column = columns.get(name) ?? new Array<number | null>(units.length).fill(null);
    column[row] = value;
    columns.set(name, column);
  };
  for (const [row, { value }] of units.entries()) for (const [name, each] of findNumbers(value)) put(name, row, each);
  for (const [row, { seconds, attempts }] of units.entries()) {
    put(RUN_COLUMNS[0], row, seconds);
    put(RUN_COLUMNS[1], row, attempts);
  }
  return { units: units.map(({ unit }) => unit), columns };
}

/** Return bars of equal width for values. */
export function createBins(values: readonly number[]): Bin[] {
  if (!values.length) return [];
  const [low, high] = values.reduce(
    ([least, most], each) => [Math.min(least, each), Math.max(most, each)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
  if (low === high) return [{ from: low - 0.5, to: high + 0.5, count: values.length }];
  const width = (high - low) / BIN_COUNT;
  const bins = Array.from({ length: BIN_COUNT }, (_, index) => ({
    from: low + index * width,
    to: low + (index + 1) * width,
    count: 0,
  }));
  for (const each of values) {
    const bin = bins[Math.min(BIN_COUNT - 1, Math.floor((each - low) / width))];
    if (bin) bin.count += 1;
  }
  return bins;
}

export interface Summary {
  count: number;
  mean: number;
  min: number;
  median: number;
  max: number;
}

/** Summarize the known values of a column; undefined if there are none. */
export function summarizeColumn(column: readonly (number | null)[]): Summary | undefined {
  const values = column.filter((each): each is number => each !== null).sort((left, right) => left - right);
  const [min, max] = [values[0], values.at(-1)];
  if (min === undefined || max === undefined) return undefined;
  const half = Math.floor(values.length / 2);
  const upper = values[half] as number;
  return {
    count: values.length,
    mean: values.reduce((sum, each) => sum + each, 0) / values.length,
    min,
    median: values.length % 2 ? upper : (upper + (values[half - 1] as number)) / 2,
    max,
  };
}

/** Format a number with up to six significant digits. */
export function formatNumber(value: number): string {
  return String(Number(value.toPrecision(6)));
}
