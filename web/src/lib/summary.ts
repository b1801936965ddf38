/** A job in one line. Pure. */

import { KINDS } from "../kinds";
import type { Job } from "./api";
import { integer } from "./format";

/** A job's parameters in one line; `show` writes a value. */
export function summary(job: Pick<Job, "type" | "parameters">, show: (value: unknown) => string = shortened): string {
  const { programs, few = [], quiet = [] } = KINDS[job.type] ?? {};
  const shown = (name: string) => (programs ? few.includes(name) : !quiet.includes(name));
  return Object.entries(job.parameters)
    .filter(([name, value]) => value !== null && shown(name))
    .map(([name, value]) => `${name} ${show(value)}`)
    .join(", ");
}

function shortened(value: unknown): string {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length > 40) return `${text.slice(0, 30)}…${/^\d+$/.test(text) ? ` (${text.length} digits)` : ""}`;
  return /^-?\d+$/.test(text) ? integer(text) : text;
}
