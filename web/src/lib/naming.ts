/** Names and times of jobs. Pure functions. */

import type { Job } from "./api";
import { ended, secondsRun } from "./fleet";
import { clock, passed, seconds } from "./format";

/** Return a job's title, or its kind if it has no title. */
export function titleOf({ title, type }: { title: string; type: string }): string {
  return title || type;
}

/** Number of an ID's characters that identify a job on a page. */
const SHORT = 8;

/** Return the start of a job ID. IDs chosen by users, such as those of workflow actions, also keep their end. */
export function shortId(id: string): string {
  if (/^[0-9a-f]{9,}$/.test(id)) return id.slice(0, SHORT);
  return id.length <= 2 * SHORT ? id : `${id.slice(0, SHORT)}…${id.slice(-SHORT)}`;
}

/** Shorten a name in the middle, because names of similar objects differ at the start or the end. */
export function middleCut(name: string, most: number): string {
  if (name.length <= most) return name;
  const end = Math.max(0, Math.floor((most - 1) / 2));
  return `${name.slice(0, Math.max(0, most - 1 - end))}…${end ? name.slice(-end) : ""}`;
}

/** Return the ID of the workflow to which a job belongs, from the start of the job's ID; undefined for other jobs. */
export function workflowIdOf(job: string): string | undefined {
  return /^[wf]-([0-9a-f]+)-./.exec(job)?.[1];
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Format a time in the reader's time zone: 14:03:27 today, otherwise 21 Nov 14:03 or 21 Nov 2025 14:03. */
export function moment(at: string | number | null | undefined, now = Date.now()): string {
  if (at === null || at === undefined || at === "") return "";
  const [date, today] = [new Date(at), new Date(now)];
  if (Number.isNaN(date.getTime())) return "";
  if (date.toDateString() === today.toDateString()) return clock(at);
  const year = date.getFullYear() === today.getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year} ${clock(at).slice(0, 5)}`;
}

/** Format a job's duration up to its end or `at` (cluster time in ms since 1970); empty before its start. */
export function took(job: Job, at: number): string {
  const ran = secondsRun(job, at);
  if (ran === null) return "";
  return ended(job) ? seconds(ran) : `${passed(Math.floor(ran))} so far`;
}

/** Format how long a job that never started has waited up to its end or `at` (cluster time in ms since 1970). */
export function waited({ created, ended: end }: Pick<Job, "created" | "ended">, at: number): string {
  const text = seconds(Math.max(0, (end ? Date.parse(end) : at) - Date.parse(created)) / 1000);
  return end ? `waited ${text}` : `${text} waiting`;
}
