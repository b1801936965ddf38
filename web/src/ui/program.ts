/** Texts in the form of a program, and the parameters that they represent. Pure functions. */

import type { Artifact } from "../lib/api";
import { formatBytes, formatInteger } from "../lib/format";
import type { Schema } from "./fields";

export type Values = Readonly<Record<string, unknown>>;

// -- command --------------------------------------------------------------------------------------------------------

/** A shell command, or separate arguments. */
export type CommandForm = "shell" | "arguments";

export function commandForm(command: unknown): CommandForm {
  return Array.isArray(command) ? "arguments" : "shell";
}

/** An argument in which {unit} and {item} are not replaced. */
interface Literal {
  literal: string;
}

/** Format a command with one argument per line and literals as JSON. */
export function formatCommand(command: unknown): string {
  const line = (each: unknown) => (typeof each === "string" ? each : JSON.stringify(each));
  return Array.isArray(command) ? command.map(line).join("\n") : typeof command === "string" ? command : "";
}

/** Return the parameter: the text unchanged, or one argument per line. */
export function parseCommand(text: string, way: CommandForm): unknown {
  if (!text.trim()) return undefined;
  return way === "shell" ? text : text.replace(/\n+$/, "").split("\n").map(parseArgument);
}

function parseArgument(line: string): string | Literal {
  if (!line.startsWith('{"literal":')) return line;
  try {
    const { literal, ...others } = JSON.parse(line) as Literal;
    return typeof literal === "string" && !Object.keys(others).length ? { literal } : line;
  } catch {
    return line;
  }
}

/** Return a hint if a shell command uses {unit} or arguments use a shell variable. */
export function checkCommand(command: unknown): string | undefined {
  if (typeof command !== "string" || !/\{(unit|item)\}/.test(command)) return undefined;
  return "a shell line has no placeholders: write $CLUSTER_UNIT or $CLUSTER_ITEM, or use the format Arguments";
}

// -- repetitions ----------------------------------------------------------------------------------------------------

/** A number of units, a list of items, or an artifact with one item per line. */
export type Repetition = "count" | "items" | "file";

export function repetitionOf(value: Values): Repetition {
  return value.items_artifact !== undefined ? "file" : value.items !== undefined ? "items" : "count";
}

/** Parse one item per line as JSON or else as text. Digits that JSON would change remain text. */
export function parseItems(text: string): unknown[] | undefined {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return lines.length ? lines.map(parseItem) : undefined;
}

function parseItem(line: string): unknown {
  try {
    const value: unknown = JSON.parse(line);
    const exact = typeof value !== "number" || String(value) === line.trim();
    return exact ? value : line;
  } catch {
    return line;
  }
}

/** Format a list of items, using JSON for texts that would be parsed differently. */
export function formatItems(items: unknown): string {
  if (!Array.isArray(items)) return "";
  const line = (item: unknown) =>
    typeof item === "string" && parseItem(item) === item && item.trim() && !item.includes("\n")
      ? item
      : JSON.stringify(item);
  return items.map(line).join("\n");
}

// -- environment ----------------------------------------------------------------------------------------------------

/** Parse NAME=value lines. A line without = is a name with an empty value. */
export function parseEnvironment(text: string): Record<string, string> | undefined {
  const pairs = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line): [string, string] => {
      const index = line.indexOf("=");
      return index < 0 ? [line.trim(), ""] : [line.slice(0, index).trim(), line.slice(index + 1)];
    });
  return pairs.length ? Object.fromEntries(pairs) : undefined;
}

export function formatEnvironment(env: unknown): string {
  if (typeof env !== "object" || env === null) return "";
  return Object.entries(env)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
}

// -- files ----------------------------------------------------------------------------------------------------------

/** Describe an artifact by its first name or short ID, and its size. */
export function describeArtifact({ artifact_id: id, names, files, bytes: size }: Artifact): string {
  const name = names.length ? `${names.join(", ")} (${id.slice(0, 8)})` : id.slice(0, 12);
  return `${name}: ${formatInteger(files)} file${files === 1 ? "" : "s"}, ${formatBytes(size)}`;
}

// -- parts of the schema --------------------------------------------------------------------------------------------

/** Parameters with their own fields above the others. */
export const MAIN_PARAMETERS = ["command", "count", "items", "items_artifact", "files", "env"] as const;

/** Groups of the other parameters, folded by default. */
export const GROUPS: readonly { title: string; names: readonly string[] }[] = [
  { title: "Environment, secrets and workspace", names: ["env", "secrets", "workspace", "python"] },
  {
    title: "Limits and retries",
    names: ["timeout_seconds", "stop_signal_seconds", "grace_seconds", "retries", "batch"],
  },
];

/** Return the schema with only these parameters in this order. */
export function selectParameters(schema: Schema, names: readonly string[]): Schema {
  const properties = Object.fromEntries(
    names.flatMap((name) => (schema.properties?.[name] ? [[name, schema.properties[name] as Schema]] : [])),
  );
  return { ...schema, properties };
}

/** Return the schema of an object parameter; undefined if the kind does not have it. */
export function objectSchema(schema: Schema, name: string): Schema | undefined {
  const property = schema.properties?.[name];
  const one = [property, ...(property?.anyOf ?? [])].find((each) => each?.$ref || each?.properties);
  const found = one?.$ref ? schema.$defs?.[one.$ref.replace("#/$defs/", "")] : one;
  return found?.properties ? { ...found, $defs: schema.$defs ?? {} } : undefined;
}

/** Return the parameters without a field above. */
export function otherParameters(schema: Schema): string[] {
  const known = [...MAIN_PARAMETERS, ...GROUPS.flatMap((group) => group.names), "outputs", "requirements"];
  return Object.keys(schema.properties ?? {}).filter((name) => !known.includes(name));
}

/** Describe the set fields of a folded group, such as `timeout seconds 60, retries`. */
export function describeSetFields(schema: Schema, value: Values, names: readonly string[]): string {
  const word = (name: string) => {
    const each = value[name];
    return `${name.replaceAll("_", " ")}${typeof each === "object" ? "" : ` ${String(each)}`}`;
  };
  return names
    .filter((name) => isSet(value[name], schema.properties?.[name]?.default))
    .map(word)
    .join(", ");
}

/** Return True if a value differs from the default; copied jobs contain all parameters. */
function isSet(value: unknown, usual: unknown): boolean {
  const empty = value === undefined || value === null || ["[]", "{}"].includes(JSON.stringify(value));
  return !empty && JSON.stringify(value) !== JSON.stringify(usual);
}
