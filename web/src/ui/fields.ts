/** Form fields from a JSON Schema, and parsing of their texts. Pure functions. */

import { formatInteger } from "../lib/format";

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  /** A bound above 2^53 as a decimal string. */
  "x-maximum"?: string;
  pattern?: string;
  discriminator?: { propertyName: string };
}

interface Shape {
  kind: "integer" | "number" | "boolean" | "choice" | "text" | "list" | "object" | "union" | "json";
  minimum?: string;
  maximum?: string;
  /** Exclusive bounds. */
  above?: string;
  below?: string;
  options?: string[];
  /** For a list: the shape of its items, and whether a single item is accepted. */
  item?: Shape;
  acceptsSingle?: boolean;
  fields?: Field[];
  /** For a union: the property that distinguishes the variants. */
  discriminator?: string;
  variants?: { name: string; fields: Field[] }[];
}

export interface Field extends Shape {
  name: string;
  label: string;
  description: string;
  default: unknown;
  /** True if the field can be omitted. */
  optional: boolean;
}

function resolveReference(schema: Schema, root: Schema): Schema {
  if (!schema.$ref) return schema;
  const definition = root.$defs?.[schema.$ref.replace("#/$defs/", "")] ?? {};
  return { ...definition, ...schema, description: schema.description ?? definition.description ?? "" };
}

const BOUNDS = {
  minimum: "minimum",
  maximum: "maximum",
  exclusiveMinimum: "above",
  exclusiveMaximum: "below",
} as const;

function readBounds(schema: Schema): Partial<Shape> {
  const limits: Partial<Shape> = {};
  for (const [keyword, name] of Object.entries(BOUNDS)) {
    const value = schema[keyword as keyof typeof BOUNDS];
    if (value !== undefined) limits[name] = String(value);
  }
  const exact = schema["x-maximum"];
  return exact === undefined ? limits : { ...limits, maximum: exact };
}

/** Return the flattened alternatives without null. */
function alternatives(schema: Schema, root: Schema): Schema[] {
  return (schema.anyOf ?? []).flatMap((each) => {
    const alternative = resolveReference(each, root);
    if (alternative.type === "null") return [];
    // Bounds can be next to an inner anyOf.
    return alternative.anyOf
      ? alternatives({ ...alternative }, root).map(
          (inner) => ({ ...alternative, anyOf: undefined, ...inner }) as Schema,
        )
      : [alternative];
  });
}

function createShape(unresolved: Schema, root: Schema): Shape {
  const schema = resolveReference(unresolved, root);
  if (schema.oneOf) return createUnionShape(schema, root);
  if (!schema.anyOf) return createPlainShape(schema, root);
  const choices = alternatives(schema, root).map((each) => ({ ...each, ...mergeBounds(schema, each) }));
  const list = choices.find((each) => each.type === "array");
  if (list && choices.length === 2) return { ...createPlainShape(list, root), acceptsSingle: true };
  const integer = choices.find((each) => each.type === "integer");
  if (integer && choices.every((each) => each.type === "integer" || each.type === "string"))
    return createPlainShape(integer, root);
  return choices.length === 1 ? createPlainShape(choices[0] as Schema, root) : { kind: "json" };
}

function mergeBounds(outer: Schema, inner: Schema): Partial<Schema> {
  const limits: Partial<Schema> = {};
  for (const name of ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "x-maximum"] as const) {
    const value = inner[name] ?? outer[name];
    if (value !== undefined) Object.assign(limits, { [name]: value });
  }
  return limits;
}

function createPlainShape(schema: Schema, root: Schema): Shape {
  if (schema.enum) return { kind: "choice", options: schema.enum.map(String) };
  if (schema.properties) return { kind: "object", fields: createFields(schema, root) };
  if (schema.type === "array") return { kind: "list", item: createShape(schema.items ?? {}, root) };
  if (schema.type === "boolean") return { kind: "boolean" };
  if (schema.type === "string") return { kind: "text" };
  if (schema.type !== "integer" && schema.type !== "number") return { kind: "json" };
  return { kind: schema.type, ...readBounds(schema) };
}

function createUnionShape(schema: Schema, root: Schema): Shape {
  const discriminator = schema.discriminator?.propertyName ?? "";
  const variants = (schema.oneOf ?? []).map((each) => {
    const variant = resolveReference(each, root);
    return {
      name: String(variant.properties?.[discriminator]?.const ?? ""),
      fields: createFields(variant, root).filter((field) => field.name !== discriminator),
    };
  });
  return discriminator ? { kind: "union", discriminator, variants } : { kind: "json" };
}

/** Return the fields of an object's schema in its order. */
export function createFields(schema: Schema, root: Schema = schema): Field[] {
  return Object.entries(schema.properties ?? {}).map(([name, fieldSchema]) => {
    const resolved = resolveReference(fieldSchema, root);
    return {
      ...createShape(fieldSchema, root),
      name,
      label: formatLabel(name),
      description: resolved.description ?? "",
      default: resolved.default ?? null,
      optional: !schema.required?.includes(name),
    };
  });
}

const UNITS: Record<string, string> = { us: "µs", ms: "ms", kib: "KiB", mib: "MiB" };

/** Convert start_number to "start number", and stack_kib to "stack, KiB". */
export function formatLabel(name: string): string {
  const words = name.split("_");
  const unit = words.length > 1 ? UNITS[words.at(-1) as string] : undefined;
  return unit ? `${words.slice(0, -1).join(" ")}, ${unit}` : words.join(" ");
}

// -- values ---------------------------------------------------------------------------------------------------------

const GROUPS = /(?<=\d)[ _'\u00a0\u2009\u202f](?=\d)/g;

/** Parse an integer such as 1 000 000, 1e6, 2^40 or 10^9+7; undefined if invalid. */
export function parseInteger(text: string): bigint | undefined {
  const plain = text.trim().replace(GROUPS, "");
  if (/^-?\d+$/.test(plain)) return BigInt(plain);
  const scientific = /^(\d+)(?:\.(\d+))?[eE]\+?(\d{1,5})$/.exec(plain);
  if (scientific) {
    const [, head = "", tail = "", power = ""] = scientific;
    const zeros = Number(power) - tail.length;
    return zeros >= 0 ? BigInt(head + tail) * 10n ** BigInt(zeros) : undefined;
  }
  const power = /^(\d{1,20})\^(\d{1,5})([+-]\d+)?$/.exec(plain);
  return power ? BigInt(power[1] as string) ** BigInt(power[2] as string) + BigInt(power[3] ?? "0") : undefined;
}

/** Return a JSON number up to 2^53, or else a decimal string. */
export function toJsonNumber(value: bigint): number | string {
  const size = value < 0n ? -value : value;
  return size <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value.toString();
}

/** Convert a text to a value for the API. Invalid texts are sent unchanged, so that the API reports the error. */
export function parseField(field: Shape, text: string): unknown {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  if (field.kind === "integer") {
    const exactly = parseInteger(trimmed);
    return exactly === undefined ? trimmed : toJsonNumber(exactly);
  }
  if (field.kind === "number") return Number.isNaN(Number(trimmed)) ? trimmed : Number(trimmed);
  if (field.kind === "list") return parseList(field, trimmed);
  if (field.kind === "json") return parseJson(trimmed);
  return text;
}

function parseList(field: Shape, text: string): unknown {
  const items = text
    .split(",")
    .filter((each) => each.trim() !== "")
    .map((each) => parseField(field.item ?? { kind: "text" }, each));
  return field.acceptsSingle && items.length === 1 ? items[0] : items;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Format a value for a field. */
export function formatField(field: Shape, value: unknown): string {
  if (value === undefined || value === null) return "";
  if (field.kind === "list") return Array.isArray(value) ? value.join(", ") : String(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Describe an error of a value; undefined if it seems valid. */
export function validateField(field: Shape, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (field.kind === "list" && field.item) {
    const items = Array.isArray(value) ? value : [value];
    return items.map((each) => validateField(field.item as Shape, each)).find(Boolean);
  }
  if (field.kind !== "integer" && field.kind !== "number") return undefined;
  const number = field.kind === "integer" ? parseInteger(String(value)) : Number(value);
  if (number === undefined || Number.isNaN(number)) {
    return `needs a ${field.kind === "integer" ? "whole number, such as 1000000, 1e6 or 2^20" : "number"}`;
  }
  return isWithinBounds(field, number) ? undefined : `must be ${describeBounds(field)}`;
}

function isWithinBounds(field: Shape, value: number | bigint): boolean {
  const limit = (text: string) => (/^-?\d+$/.test(text) ? BigInt(text) : Number(text));
  const { minimum, maximum, above, below } = field;
  return (
    (minimum === undefined || value >= limit(minimum)) &&
    (maximum === undefined || value <= limit(maximum)) &&
    (above === undefined || value > limit(above)) &&
    (below === undefined || value < limit(below))
  );
}

/** Describe the bounds, such as "1 to 64" or "more than 0, at most 10"; empty without bounds. */
export function describeBounds(field: Shape): string {
  const inner = field.kind === "list" && field.item ? field.item : field;
  const [minimum, maximum, above, below] = [inner.minimum, inner.maximum, inner.above, inner.below].map(groupDigits);
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  const words = { "at least": minimum, "more than": above, "at most": maximum, "less than": below };
  return Object.entries(words)
    .filter(([, each]) => each !== undefined)
    .map((each) => each.join(" "))
    .join(", ");
}

function groupDigits(bound: string | undefined): string | undefined {
  return bound !== undefined && /^-?\d+$/.test(bound) ? formatInteger(bound) : bound;
}

/** Return a copy without unset fields. */
export function removeUnset(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined));
}
