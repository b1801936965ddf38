/** One-line summaries of jobs. Pure functions. */

import { KINDS, workflowAddress } from "../kinds";
import type { Job } from "./api";
import { formatInteger } from "./format";
import { workflowId } from "./naming";

/** Return a job's parameters on one line; `format` formats a value. */
export function summarizeJob(
  job: Pick<Job, "type" | "parameters">,
  format: (value: unknown) => string = shortenValue,
): string {
  const { hasPrograms: programs, mainParameters: few = [], technicalParameters: quiet = [] } = KINDS[job.type] ?? {};
  const isListed = (name: string) => (programs ? few.includes(name) : !quiet.includes(name));
  return Object.entries(job.parameters)
    .filter(([name, value]) => value !== null && isListed(name))
    .map(([name, value]) => `${name} ${format(programs && name === "command" ? joinArguments(value) : value)}`)
    .join(", ");
}

/** Format a program's arguments as a user would type them. */
export function typedParameters(kind: string, parameters: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const typed = { ...parameters };
  if (KINDS[kind]?.hasPrograms && "command" in typed) typed.command = joinArguments(typed.command);
  return typed;
}

/** Join arguments as a user would type them. */
function joinArguments(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const texts = value.map((each) => (typeof each === "string" ? each : String(each.literal)));
  return texts.map((each) => (/^[\w@%+=:,./{}-]+$/.test(each) ? each : JSON.stringify(each))).join(" ");
}

function shortenValue(value: unknown): string {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length > 40) return `${text.slice(0, 30)}…${/^\d+$/.test(text) ? ` (${text.length} digits)` : ""}`;
  return /^-?\d+$/.test(text) ? formatInteger(text) : text;
}

/** Explain as a sentence why a job is waiting. A running job without free units is not waiting. */
export function explainWait({ state, waiting_because: why }: Pick<Job, "state" | "waiting_because">): string {
  if (!why) return "";
  return state === "running" || /^(waits|starts) /.test(why)
    ? `${why.charAt(0).toUpperCase()}${why.slice(1)}.`
    : `Waits: ${why}.`;
}

/** Return the URL of the workflow to which a job belongs; undefined for other jobs. */
export function jobWorkflowAddress(job: string): string | undefined {
  const id = workflowId(job);
  return id && workflowAddress(id);
}
