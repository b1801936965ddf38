/**
 * Converts a result of any shape to figures, histograms and tables. Pure functions.
 *
 * The parts of a result are displayed as follows:
 * - a number, a text, true or false: a figure;
 * - a list of objects, of lists or of values: a table with one row per item;
 * - an object of objects: a table with one row per name;
 * - an object of lists of the same length: a table with one column per name;
 * - a histogram: `{"edges": [n + 1 numbers], "counts": [n]}`, `{"start": number, "step": number, "counts": [n]}`, or a
 *   list of `[integer, count]` if the kind's result schema gives it the format "histogram".
 * Titles in that schema replace names.
 */

import type { ResultValue } from "../../../kinds";
import type { Bin } from "../../../ui/bins";
import { formatLabel } from "../../../ui/fields";

export type Cell = string | number | boolean | null;

export interface TablePart {
  title: string;
  columns: string[];
  rows: Cell[][];
}

export interface HistogramPart {
  title: string;
  bins: Bin[];
}

export interface ResultParts {
  figures: [title: string, value: Cell][];
  histograms: HistogramPart[];
  tables: TablePart[];
}

type Fields = Record<string, unknown>;

/** The supported part of a JSON Schema: titles, formats and nested schemas. */
export interface Schema {
  title?: string;
  format?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
}

/** Maximum number of histogram bars; more values share bars of equal width. */
const MAX_BARS = 120;
/** Maximum number of list items shown individually if they contain tables. */
const MAX_PARTS = 8;
/** Fields that repeat the request. */
const REQUEST_FIELDS = ["type", "model_version", "parameters"];

/**
 * Convert a result to values, histograms and tables. With `figures`, only the values at these paths are shown as
 * figures.
 */
export function convertResult(result: unknown, figures?: readonly ResultValue[], schema?: Schema): ResultParts {
  const parts: ResultParts = { figures: [], histograms: [], tables: [] };
  const into: ConversionState = { ...parts, schema };
  const fields = isObject(result)
    ? Object.fromEntries(Object.entries(result).filter(([name]) => !REQUEST_FIELDS.includes(name)))
    : result;
  convertValue(fields, [], into);
  if (!figures) return parts;
  const values = figures.map(([title, path]): [string, unknown] => [title, valueAt(result, path)]);
  const present = values.filter((each): each is [string, Cell] => isCell(each[1]) && each[1] !== null);
  if (!present.length) return parts;
  const titles = new Set(figures.map(([, path]) => formatTitle(path.split("."), schema)));
  const rest = parts.figures.filter(([title]) => !titles.has(title));
  if (rest.length) parts.tables.unshift({ title: "other figures", columns: ["name", "value"], rows: rest });
  return { ...parts, figures: present };
}

/** Return the value at a path such as `cells.0.mean`; undefined if missing. */
export function valueAt(value: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>(
      (inner, name) => (isObject(inner) || Array.isArray(inner) ? (inner as Fields)[name] : undefined),
      value,
    );
}

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCell(value: unknown): value is Cell {
  return value === null || ["string", "number", "boolean"].includes(typeof value);
}

function isNumber(value: unknown): boolean {
  return typeof value === "number" || (typeof value === "string" && /^-?\d+$/.test(value));
}

/** The converted part of the result and its schema. */
interface ConversionState extends ResultParts {
  schema: Schema | undefined;
}

/** Return the schema at a path whose numbers are list indexes. */
function schemaAt(schema: Schema | undefined, path: readonly string[]): Schema | undefined {
  return path.reduce<Schema | undefined>((inner, name) => inner?.properties?.[name] ?? inner?.items, schema);
}

function formatTitle(path: readonly string[], schema?: Schema): string {
  const title = (index: number) => schemaAt(schema, path.slice(0, index + 1))?.title;
  return path.map((name, index) => (isNumber(name) ? name : title(index) || formatLabel(name))).join(" ") || "result";
}

function convertValue(value: unknown, path: readonly string[], into: ConversionState): void {
  if (isCell(value)) {
    if (value !== null) into.figures.push([formatTitle(path, into.schema), value]);
    return;
  }
  const bins = parseHistogram(value, schemaAt(into.schema, path)?.format);
  if (bins) into.histograms.push({ title: formatTitle(path, into.schema), bins });
  else if (Array.isArray(value)) convertList(value, path, into);
  else if (isObject(value)) convertObject(value, path, into);
}

// -- lists ------------------------------------------------------------------------------------------------------------

function convertList(items: readonly unknown[], path: readonly string[], into: ConversionState): void {
  if (!items.length) return;
  const title = formatTitle(path, into.schema);
  if (items.every(isCell)) {
    into.tables.push({ title, columns: ["place", "value"], rows: items.map((item, index) => [index, item]) });
  } else if (items.every((item): item is Cell[] => Array.isArray(item) && item.every(isCell))) {
    const width = Math.max(...items.map((item) => item.length));
    const columns = Array.from({ length: width }, (_, index) => String(index + 1));
    into.tables.push({ title, columns, rows: items.map((item) => columns.map((_, index) => item[index] ?? null)) });
  } else convertObjects(items, path, into);
}

function convertObjects(items: readonly unknown[], path: readonly string[], into: ConversionState): void {
  const rows = items.map((item) => createCells(item, schemaAt(into.schema, [...path, "1"])));
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  if (columns.length)
    into.tables.push({
      title: formatTitle(path, into.schema),
      columns,
      rows: rows.map((row) => columns.map((name) => row[name] ?? null)),
    });
  if (items.length > MAX_PARTS) return;
  for (const [index, item] of items.entries()) {
    if (!isObject(item)) continue;
    for (const [name, inner] of Object.entries(item))
      if (!isFlat(inner)) convertValue(inner, [...path, String(index + 1), name], into);
  }
}

/** Maximum number of list items in a table cell, such as the ends of an interval. */
const MAX_IN_CELL = 4;

function isShort(value: unknown): value is Cell[] {
  return Array.isArray(value) && value.length <= MAX_IN_CELL && value.every(isCell);
}

/** Return True if a table row can contain the value: a single value, a short list, or an object of these. */
function isFlat(value: unknown): boolean {
  const held = (inner: unknown) => isCell(inner) || isShort(inner);
  return held(value) || (isObject(value) && Object.values(value).every(held) && !parseHistogram(value));
}

/** Return the cells of an object's row; nested fields get both names. */
function createCells(item: unknown, schema?: Schema): Record<string, Cell> {
  if (!isObject(item)) return isCell(item) ? { value: item } : {};
  const cells: Record<string, Cell> = {};
  const put = (path: string[], value: unknown) => {
    if (isCell(value)) cells[formatTitle(path, schema)] = value;
    else if (isShort(value)) cells[formatTitle(path, schema)] = value.map((each) => formatCell(each)).join(", ");
  };
  for (const [name, value] of Object.entries(item)) {
    if (!isFlat(value)) continue;
    if (isObject(value)) for (const [inner, each] of Object.entries(value)) put([name, inner], each);
    else put([name], value);
  }
  return cells;
}

const DIGITS = 6;

/** Format a cell with six significant digits; the file and the JSON contain all digits. */
export function formatCell(cell: Cell): string | number | boolean {
  if (cell === null) return "";
  return typeof cell === "number" && !Number.isInteger(cell) ? Number(cell.toPrecision(DIGITS)) : cell;
}

// -- objects ----------------------------------------------------------------------------------------------------------

function convertObject(fields: Fields, path: readonly string[], into: ConversionState): void {
  const values = Object.values(fields);
  if (!values.length) return;
  const lists = values.every((each): each is Cell[] => Array.isArray(each) && each.every(isCell));
  const length = lists ? (values[0] as Cell[]).length : 0;
  if (lists && length > 1 && values.every((each) => (each as Cell[]).length === length)) {
    const columns = Object.keys(fields);
    const rows = Array.from({ length }, (_, index) => columns.map((name) => (fields[name] as Cell[])[index] as Cell));
    into.tables.push({
      title: formatTitle(path, into.schema),
      columns: columns.map((name) => formatTitle([name], schemaAt(into.schema, path))),
      rows,
    });
    return;
  }
  if (values.length > 1 && values.every((each) => isObject(each) && !parseHistogram(each))) {
    convertNamed(fields as Record<string, Fields>, path, into);
    return;
  }
  for (const [name, value] of Object.entries(fields)) convertValue(value, [...path, name], into);
}

/** Convert an object of objects to rows if they share columns, otherwise to separate parts. */
function convertNamed(fields: Record<string, Fields>, path: readonly string[], into: ConversionState): void {
  const inner = (name: string) => schemaAt(into.schema, [...path, name]);
  const rows = Object.entries(fields).map(([name, each]): [string, Record<string, Cell>] => [
    name,
    createCells(each, inner(name)),
  ]);
  const first = Object.keys(rows[0]?.[1] ?? {});
  if (!first.length || !rows.every(([, row]) => first.some((name) => name in row))) {
    for (const [name, value] of Object.entries(fields)) convertValue(value, [...path, name], into);
    return;
  }
  const columns = [...new Set(rows.flatMap(([, row]) => Object.keys(row)))];
  into.tables.push({
    title: formatTitle(path, into.schema),
    columns: ["name", ...columns],
    rows: rows.map(([name, row]) => [
      inner(name)?.title || formatTitle([name]),
      ...columns.map((column) => row[column] ?? null),
    ]),
  });
  for (const [name, each] of Object.entries(fields))
    for (const [inner, value] of Object.entries(each))
      if (!isFlat(value)) convertValue(value, [...path, name, inner], into);
}

// -- histograms -------------------------------------------------------------------------------------------------------

/** Return the bins of a histogram value. */
function parseHistogram(value: unknown, format?: string): Bin[] | undefined {
  if (Array.isArray(value)) return format === "histogram" ? groupPairs(value) : undefined;
  if (!isObject(value) || !Array.isArray(value.counts) || !value.counts.every(isNumber)) return undefined;
  const counts = value.counts.map(Number);
  const { edges, start, step } = value;
  if (Array.isArray(edges) && edges.every(isNumber) && edges.length === counts.length + 1)
    return counts.map((count, index) => ({ from: Number(edges[index]), to: Number(edges[index + 1]), count }));
  if (!isNumber(start) || !isNumber(step) || !(Number(step) > 0)) return undefined;
  const edge = (index: number) => Number(start) + index * Number(step);
  return counts.map((count, index) => ({ from: edge(index), to: edge(index + 1), count }));
}

/** Return bars of equal width for integers and their counts. */
function groupPairs(items: readonly unknown[]): Bin[] | undefined {
  const fits = (item: unknown) => Array.isArray(item) && item.length === 2 && item.every(isNumber);
  if (!items.length || !items.every(fits)) return undefined;
  const sorted = items.map((item) => (item as unknown[]).map(Number) as [number, number]).sort((a, b) => a[0] - b[0]);
  if (!sorted.every(([each]) => Number.isInteger(each))) return undefined;
  const [first, last] = [(sorted[0] as [number, number])[0], (sorted.at(-1) as [number, number])[0]];
  const width = Math.ceil((last - first + 1) / MAX_BARS);
  const bins: Bin[] = [];
  for (let from = first; from <= last; from += width) bins.push({ from, to: from + width, count: 0 });
  for (const [each, count] of sorted) (bins[Math.floor((each - first) / width)] as Bin).count += count;
  return bins;
}
