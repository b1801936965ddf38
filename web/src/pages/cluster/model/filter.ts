/** The filter of the job list, such as `state:running kind:NAME -priority:low 5c7b`. Pure functions. */

import type { Job } from "../../../lib/api";
import { summarizeJob } from "../../../lib/summary";

export const NAMES = ["state", "kind", "priority", "device", "queue", "tenant", "id"] as const;
type Name = (typeof NAMES)[number];

interface Token {
  name: Name | "text";
  value: string;
  not: boolean;
}

export interface Filter {
  tokens: readonly Token[];
  /** Unknown names before a colon, which the filter treats as text. */
  unknown: readonly string[];
}

function token(word: string): { token: Token; unknown?: string } {
  const not = word.startsWith("-") && word.length > 1;
  const plain = not ? word.slice(1) : word;
  const [, name, value] = /^([a-z]+):(.*)$/i.exec(plain) ?? [];
  if (name === undefined || value === undefined) return { token: { name: "text", value: plain.toLowerCase(), not } };
  const known = NAMES.find((each) => each === name.toLowerCase());
  if (known) return { token: { name: known, value: value.toLowerCase(), not } };
  return { token: { name: "text", value: plain.toLowerCase(), not }, unknown: name };
}

export function parse(text: string): Filter {
  const words = text.split(/\s+/).filter(Boolean).map(token);
  return {
    // An unfinished token has no effect.
    tokens: words.map((each) => each.token).filter((each) => each.value !== ""),
    unknown: words.flatMap((each) => each.unknown ?? []),
  };
}

const FIELDS: Record<Name, (job: Job) => string> = {
  state: (job) => job.state,
  kind: (job) => job.type,
  priority: (job) => job.priority,
  device: (job) => job.device,
  queue: (job) => job.queue,
  tenant: (job) => job.tenant,
  id: (job) => job.job_id,
};

function haystack(job: Job): string {
  return (
    `${job.job_id} ${job.type} ${job.state} ${summarizeJob(job, JSON.stringify)} ${job.error ?? ""} ` +
    `${job.waiting_because ?? ""}`
  ).toLowerCase();
}

function fits(job: Job, { name, value }: Token): boolean {
  if (name === "text") return haystack(job).includes(value);
  const field = FIELDS[name](job).toLowerCase();
  return name === "id" ? field.startsWith(value) : field === value;
}

/**
 * Return True if a job matches: tokens of one name are alternatives; all names, texts and negated tokens must match.
 */
export function matches(job: Job, { tokens }: Filter): boolean {
  if (tokens.some((each) => each.not && fits(job, each))) return false;
  const wanted = tokens.filter((each) => !each.not);
  if (!wanted.filter((each) => each.name === "text").every((each) => fits(job, each))) return false;
  const names = new Set(wanted.map((each) => each.name).filter((name) => name !== "text"));
  return [...names].every((name) => wanted.some((each) => each.name === name && fits(job, each)));
}

/** Return the value of a name if the filter contains exactly one, which the API can filter. */
export function only({ tokens }: Filter, name: Name): string | undefined {
  const same = tokens.filter((each) => each.name === name);
  return same.length === 1 && !same[0]?.not ? same[0]?.value : undefined;
}

/** Add a token to the text, or remove it if it is present. */
export function toggled(text: string, word: string): string {
  const words = text.split(/\s+/).filter(Boolean);
  return (words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" ");
}
