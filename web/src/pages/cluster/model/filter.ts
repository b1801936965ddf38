/** The filter of the job list, such as `state:running kind:NAME -priority:low 5c7b`. Pure functions. */

import type { Job } from "../../../lib/api";
import { summarizeJob } from "../../../lib/summary";

export const FILTER_NAMES = ["state", "kind", "priority", "device", "queue", "tenant", "id"] as const;
type FilterName = (typeof FILTER_NAMES)[number];

interface FilterToken {
  name: FilterName | "text";
  value: string;
  isNegated: boolean;
}

export interface Filter {
  tokens: readonly FilterToken[];
  /** Unknown names before a colon, which the filter treats as text. */
  unknown: readonly string[];
}

function parseToken(word: string): { token: FilterToken; unknown?: string } {
  const isNegated = word.startsWith("-") && word.length > 1;
  const plain = isNegated ? word.slice(1) : word;
  const [, name, value] = /^([a-z]+):(.*)$/i.exec(plain) ?? [];
  if (name === undefined || value === undefined)
    return { token: { name: "text", value: plain.toLowerCase(), isNegated } };
  const known = FILTER_NAMES.find((each) => each === name.toLowerCase());
  if (known) return { token: { name: known, value: value.toLowerCase(), isNegated } };
  return { token: { name: "text", value: plain.toLowerCase(), isNegated }, unknown: name };
}

export function parseFilter(text: string): Filter {
  const words = text.split(/\s+/).filter(Boolean).map(parseToken);
  return {
    // An unfinished token has no effect.
    tokens: words.map((each) => each.token).filter((each) => each.value !== ""),
    unknown: words.flatMap((each) => each.unknown ?? []),
  };
}

const FIELDS: Record<FilterName, (job: Job) => string> = {
  state: (job) => job.state,
  kind: (job) => job.type,
  priority: (job) => job.priority,
  device: (job) => job.device,
  queue: (job) => job.queue,
  tenant: (job) => job.tenant,
  id: (job) => job.job_id,
};

function searchText(job: Job): string {
  return (
    `${job.job_id} ${job.type} ${job.state} ${summarizeJob(job, JSON.stringify)} ${job.error ?? ""} ` +
    `${job.waiting_because ?? ""}`
  ).toLowerCase();
}

function matchesToken(job: Job, { name, value }: FilterToken): boolean {
  if (name === "text") return searchText(job).includes(value);
  const field = FIELDS[name](job).toLowerCase();
  return name === "id" ? field.startsWith(value) : field === value;
}

/**
 * Return True if a job matches: tokens of one name are alternatives; all names, texts and negated tokens must match.
 */
export function matchesFilter(job: Job, { tokens }: Filter): boolean {
  if (tokens.some((each) => each.isNegated && matchesToken(job, each))) return false;
  const required = tokens.filter((each) => !each.isNegated);
  if (!required.filter((each) => each.name === "text").every((each) => matchesToken(job, each))) return false;
  const names = new Set(required.map((each) => each.name).filter((name) => name !== "text"));
  return [...names].every((name) => required.some((each) => each.name === name && matchesToken(job, each)));
}

/** Return the value of a name if the filter contains exactly one, which the API can filter. */
export function singleValue({ tokens }: Filter, name: FilterName): string | undefined {
  const same = tokens.filter((each) => each.name === name);
  return same.length === 1 && !same[0]?.isNegated ? same[0]?.value : undefined;
}

/** Add a token to the text, or remove it if it is present. */
export function toggleToken(text: string, word: string): string {
  const words = text.split(/\s+/).filter(Boolean);
  return (words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" ");
}
