/** Names and times of jobs. Pure functions. */

import type { Job } from "./api";
import { isEnded, runSeconds } from "./fleet";
import { formatClock, formatElapsed, formatSeconds } from "./format";

/** Return a job's title, or its kind if it has no title. */
export function jobTitle({ title, type }: { title: string; type: string }): string {
  return title || type;
}

/** Number of an ID's characters that identify a job on a page. */
const SHORT_ID_LENGTH = 8;

/** Return the start of a job ID. IDs chosen by users, such as those of workflow actions, also keep their end. */
export function shortId(id: string): string {
  if (/^[0-9a-f]{9,}$/.test(id)) return id.slice(0, SHORT_ID_LENGTH);
  return id.length <= 2 * SHORT_ID_LENGTH ? id : `${id.slice(0, SHORT_ID_LENGTH)}…${id.slice(-SHORT_ID_LENGTH)}`;
}

/** Shorten a name in the middle, because names of similar objects differ at the start or the end. */
export function shortenMiddle(name: string, maxLength: number): string {
  if (name.length <= maxLength) return name;
  const end = Math.max(0, Math.floor((maxLength - 1) / 2));
  return `${name.slice(0, Math.max(0, maxLength - 1 - end))}…${end ? name.slice(-end) : ""}`;
}

/** Return the ID of the workflow to which a job belongs, from the start of the job's ID; undefined for other jobs. */
export function workflowId(job: string): string | undefined {
  return /^[wf]-([0-9a-f]+)-./.exec(job)?.[1];
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Format a time in the reader's time zone: 14:03:27 today, otherwise 21 Nov 14:03 or 21 Nov 2025 14:03. */
export function formatTimestamp(time: string | number | null | undefined, now = Date.now()): string {
  if (time === null || time === undefined || time === "") return "";
  const [date, today] = [new Date(time), new Date(now)];
  if (Number.isNaN(date.getTime())) return "";
  if (date.toDateString() === today.toDateString()) return formatClock(time);
  const year = date.getFullYear() === today.getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year} ${formatClock(time).slice(0, 5)}`;
}

/** Format a job's duration up to its end or `at` (cluster time in ms since 1970); empty before its start. */
export function formatDuration(job: Job, at: number): string {
  const duration = runSeconds(job, at);
  if (duration === null) return "";
  return isEnded(job) ? formatSeconds(duration) : `${formatElapsed(Math.floor(duration))} so far`;
}

/** Format how long a job that never started has waited up to its end or `at` (cluster time in ms since 1970). */
export function formatWait({ created, ended: end }: Pick<Job, "created" | "ended">, at: number): string {
  const text = formatSeconds(Math.max(0, (end ? Date.parse(end) : at) - Date.parse(created)) / 1000);
  return end ? `waited ${text}` : `${text} waiting`;
}
