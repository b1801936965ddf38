/** A job in one line. Pure. */

import { clusterAddress, KINDS } from "../kinds";
import type { Job } from "./api";
import { integer } from "./format";
import { workflowIdOf } from "./naming";

/** A job's parameters in one line; `show` writes a value. */
export function summary(job: Pick<Job, "type" | "parameters">, show: (value: unknown) => string = shortened): string {
  const { programs, few = [], quiet = [] } = KINDS[job.type] ?? {};
  const shown = (name: string) => (programs ? few.includes(name) : !quiet.includes(name));
  return Object.entries(job.parameters)
    .filter(([name, value]) => value !== null && shown(name))
    .map(([name, value]) => `${name} ${show(programs && name === "command" ? words(value) : value)}`)
    .join(", ");
}

/** Parameters for people: the words of a program as somebody types them. */
export function asTyped(kind: string, parameters: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const given = { ...parameters };
  if (KINDS[kind]?.programs && "command" in given) given.command = words(given.command);
  return given;
}

/** Arguments as somebody types them. */
function words(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const texts = value.map((each) => (typeof each === "string" ? each : String(each.literal)));
  return texts.map((each) => (/^[\w@%+=:,./{}-]+$/.test(each) ? each : JSON.stringify(each))).join(" ");
}

function shortened(value: unknown): string {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length > 40) return `${text.slice(0, 30)}…${/^\d+$/.test(text) ? ` (${text.length} digits)` : ""}`;
  return /^-?\d+$/.test(text) ? integer(text) : text;
}

/** Why no more of a job is begun, as a sentence; a job that runs does not wait, it has given out all it has. */
export function waits({ state, waiting_because: why }: Pick<Job, "state" | "waiting_because">): string {
  if (!why) return "";
  return state === "running" || why.startsWith("waits ")
    ? `${why.charAt(0).toUpperCase()}${why.slice(1)}.`
    : `Waits: ${why}.`;
}

/** Where the workflow of a job is shown; undefined for a job of none. */
export function workflowOf(job: string): string | undefined {
  const id = workflowIdOf(job);
  return id && workflowAddress(id);
}

/** Where a workflow is shown. */
export function workflowAddress(id: string): string {
  return `${clusterAddress().split("#")[0]}#tab=workflows&workflow=${id}`;
}
