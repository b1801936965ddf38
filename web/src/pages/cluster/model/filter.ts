/** The filter of the job list, such as `state:running kind:NAME -priority:low 5c7b`. Pure functions. */

import type { Job } from "../../../lib/api";
import { summarizeJob } from "../../../lib/summary";

export const FILTER_NAMES = ["state", "kind", "priority", "device", "queue", "tenant", "id", "tag"] as const;
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
  tag: (job) => (job.tags ?? []).join(" "),
};

function searchText(job: Job): string {
  return (
    `${job.job_id} ${job.title} ${(job.tags ?? []).join(" ")} ${job.type} ${job.state} ` +
    `${summarizeJob(job, JSON.stringify)} ${job.error ?? ""} ${job.waiting_because ?? ""}`
  ).toLowerCase();
}

function matchesToken(job: Job, { name, value }: FilterToken): boolean {
  if (name === "text") return searchText(job).includes(value);
  if (name === "tag") return (job.tags ?? []).some((each) => each.toLowerCase() === value);
  const field = FIELDS[name](job).toLowerCase();
  return name === "id" ? field.startsWith(value) : field === value;
}

/**
 * Return True if a job matches: tokens of one name are alternatives, except tags; all names, tags, texts and negated
 * tokens must match.
 */
export function matchesFilter(job: Job, { tokens }: Filter): boolean {
  if (tokens.some((each) => each.isNegated && matchesToken(job, each))) return false;
  const required = tokens.filter((each) => !each.isNegated);
  const isSeparate = ({ name }: FilterToken) => name === "text" || name === "tag";
  if (!required.filter(isSeparate).every((each) => matchesToken(job, each))) return false;
  const names = new Set(required.filter((each) => !isSeparate(each)).map((each) => each.name));
  return [...names].every((name) => required.some((each) => each.name === name && matchesToken(job, each)));
}

/** The part of a filter that the API applies, and whether it is the complete filter. */
export interface ServerFilter {
  query: { state: string[]; type?: string; tenant?: string; tag: string[]; search?: string };
  isComplete: boolean;
}

/** Convert a filter to a query of GET /api/jobs. The API knows the states of `states`. */
export function toServerFilter({ tokens }: Filter, states: readonly string[]): ServerFilter {
  const values = (...names: FilterToken["name"][]) =>
    tokens.filter((each) => names.includes(each.name) && !each.isNegated).map((each) => each.value);
  const [state, kinds, tenants] = [values("state"), values("kind"), values("tenant")];
  const query = {
    state: state.every((each) => states.includes(each)) ? state : [],
    type: kinds.length === 1 ? kinds[0] : undefined,
    tenant: tenants.length === 1 ? tenants[0] : undefined,
    tag: values("tag"),
    search: values("text", "id").join(" ") || undefined,
  };
  const sent =
    query.state.length + query.tag.length + values("text").length + [query.type, query.tenant].filter(Boolean).length;
  return { query, isComplete: sent === tokens.length };
}

/** Add a token to the text, or remove it if it is present. */
export function toggleToken(text: string, word: string): string {
  const words = text.split(/\s+/).filter(Boolean);
  return (words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" ");
}
