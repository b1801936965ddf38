/** Schedules in the API. Pure functions except for requests. */

import { deleteResource, get, post, type Schedule } from "../../../lib/api";
import { formatSeconds } from "../../../lib/format";

export type ScheduleVerb = "pause" | "resume" | "run";

function schedulePath(name: string): string {
  return `/api/schedules/${encodeURIComponent(name)}`;
}

export async function loadSchedules(signal?: AbortSignal): Promise<readonly Schedule[]> {
  return (await get<{ schedules: readonly Schedule[] }>("/api/schedules", {}, signal)).schedules;
}

export function loadSchedule(name: string, signal?: AbortSignal): Promise<Schedule> {
  return get(schedulePath(name), {}, signal);
}

export function controlSchedule(
  name: string,
  verb: ScheduleVerb,
): Promise<{ job_id?: string | null; workflow_id?: string | null }> {
  return post(`${schedulePath(name)}/${verb}`);
}

export function deleteSchedule(name: string): Promise<void> {
  return deleteResource(schedulePath(name));
}

/** Return the actions on a schedule, in the order of their buttons. */
export function allowedScheduleVerbs({ state }: Pick<Schedule, "state">): ScheduleVerb[] {
  if (state === "ended") return ["run"];
  return [state === "paused" ? "resume" : "pause", "run"];
}

/** Describe when a schedule runs, such as `every 1 h` or `0 3 * * *, Europe/Berlin`. */
export function describeTimes({ every_seconds: every, cron, timezone }: Schedule): string {
  return cron ? `${cron}, ${timezone}` : `every ${formatSeconds(every)}`;
}

/** Describe skipped, missed and failed runs; empty if there are none. */
export function describeMissed({ skipped, missed, failed }: Schedule): string {
  const counts: [number, string][] = [
    [failed, "refused"],
    [missed, "missed"],
    [skipped, "skipped"],
  ];
  return counts
    .filter(([count]) => count)
    .map(([count, word]) => `${count} ${word}`)
    .join(", ");
}

/** Format the time until a moment, such as `in 3 min`, or `due` if it has passed. */
export function formatTimeUntil(moment: string | null, now: number): string {
  if (!moment) return "";
  const left = Math.floor((Date.parse(moment) - now) / 1000);
  return left > 0 ? `in ${formatSeconds(left)}` : "due";
}
