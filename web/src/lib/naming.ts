/** Names of jobs, and when they came and how long they took. Pure. */

import type { Job } from "./api";
import { ended, secondsRun } from "./fleet";
import { clock, passed, seconds } from "./format";

/** A job's name; its kind if that gives its jobs no names. */
export function titleOf({ title, type }: { title: string; type: string }): string {
  return title || type;
}

/** Characters of an id that tell jobs apart on a page. */
const SHORT = 8;

/** The beginning of a job's id. One that somebody chose, such as that of a workflow's action, keeps its end as well. */
export function shortId(id: string): string {
  if (/^[0-9a-f]{9,}$/.test(id)) return id.slice(0, SHORT);
  return id.length <= 2 * SHORT ? id : `${id.slice(0, SHORT)}…${id.slice(-SHORT)}`;
}

/** A name in at most this many letters: its beginning and its end, since names of a fleet differ in either. */
export function middleCut(name: string, most: number): string {
  if (name.length <= most) return name;
  const end = Math.max(0, Math.floor((most - 1) / 2));
  return `${name.slice(0, Math.max(0, most - 1 - end))}…${end ? name.slice(-end) : ""}`;
}

/** The workflow that a job is of, which its id begins with, be it an action's or an item's; undefined for any other. */
export function workflowIdOf(job: string): string | undefined {
  return /^[wf]-([0-9a-f]+)-./.exec(job)?.[1];
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A moment in the reader's time zone: 14:03:27 on the day of `now`, else 21 Nov 14:03, or 21 Nov 2025 14:03. */
export function moment(at: string | number | null | undefined, now = Date.now()): string {
  if (at === null || at === undefined || at === "") return "";
  const [date, today] = [new Date(at), new Date(now)];
  if (Number.isNaN(date.getTime())) return "";
  if (date.toDateString() === today.toDateString()) return clock(at);
  const year = date.getFullYear() === today.getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year} ${clock(at).slice(0, 5)}`;
}

/** How long a job took, or has taken by `at`, ms since 1970 of the cluster's clock; empty before its start. */
export function took(job: Job, at: number): string {
  const ran = secondsRun(job, at);
  if (ran === null) return "";
  return ended(job) ? seconds(ran) : `${passed(Math.floor(ran))} so far`;
}

/** How long a job that never ran has waited by `at`, ms since 1970 of the cluster's clock, or waited until its end. */
export function waited({ created, ended: end }: Pick<Job, "created" | "ended">, at: number): string {
  const text = seconds(Math.max(0, (end ? Date.parse(end) : at) - Date.parse(created)) / 1000);
  return end ? `waited ${text}` : `${text} waiting`;
}
