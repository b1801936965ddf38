/** One-line summaries of jobs. Pure functions. */

import { clusterAddress, KINDS } from "../kinds";
import type { Job } from "./api";
import { integer } from "./format";
import { workflowIdOf } from "./naming";

/** Return a job's parameters on one line; `show` formats a value. */
export function summary(job: Pick<Job, "type" | "parameters">, show: (value: unknown) => string = shortened): string {
  const { programs, few = [], quiet = [] } = KINDS[job.type] ?? {};
  const shown = (name: string) => (programs ? few.includes(name) : !quiet.includes(name));
  return Object.entries(job.parameters)
    .filter(([name, value]) => value !== null && shown(name))
    .map(([name, value]) => `${name} ${show(programs && name === "command" ? words(value) : value)}`)
    .join(", ");
}

/** Format a program's arguments as a user would type them. */
export function asTyped(kind: string, parameters: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const given = { ...parameters };
  if (KINDS[kind]?.programs && "command" in given) given.command = words(given.command);
  return given;
}

/** Join arguments as a user would type them. */
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

/** Explain as a sentence why a job is waiting. A running job without free units is not waiting. */
export function waits({ state, waiting_because: why }: Pick<Job, "state" | "waiting_because">): string {
  if (!why) return "";
  return state === "running" || why.startsWith("waits ")
    ? `${why.charAt(0).toUpperCase()}${why.slice(1)}.`
    : `Waits: ${why}.`;
}

/** Return the URL of the workflow to which a job belongs; undefined for other jobs. */
export function workflowOf(job: string): string | undefined {
  const id = workflowIdOf(job);
  return id && workflowAddress(id);
}

/** Return the URL of a workflow. */
export function workflowAddress(id: string): string {
  return `${clusterAddress().split("#")[0]}#tab=workflows&workflow=${id}`;
}
