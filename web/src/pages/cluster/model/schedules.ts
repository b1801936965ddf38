/** Schedules in the API. Pure functions except for requests. */

import { deleteResource, get, post, type Schedule } from "../../../lib/api";
import { formatSeconds } from "../../../lib/format";

export type ScheduleVerb = "pause" | "resume" | "run";

function path(name: string): string {
  return `/api/schedules/${encodeURIComponent(name)}`;
}

export async function schedules(signal?: AbortSignal): Promise<readonly Schedule[]> {
  return (await get<{ schedules: readonly Schedule[] }>("/api/schedules", {}, signal)).schedules;
}

export function schedule(name: string, signal?: AbortSignal): Promise<Schedule> {
  return get(path(name), {}, signal);
}

export function steerSchedule(
  name: string,
  verb: ScheduleVerb,
): Promise<{ job_id?: string | null; workflow_id?: string | null }> {
  return post(`${path(name)}/${verb}`);
}

export function deleteSchedule(name: string): Promise<void> {
  return deleteResource(path(name));
}

/** Return the actions on a schedule, in the order of their buttons. */
export function scheduleVerbs({ state }: Pick<Schedule, "state">): ScheduleVerb[] {
  if (state === "ended") return ["run"];
  return [state === "paused" ? "resume" : "pause", "run"];
}

/** Describe when a schedule runs, such as `every 1 h` or `0 3 * * *, Europe/Berlin`. */
export function times({ every_seconds: every, cron, timezone }: Schedule): string {
  return cron ? `${cron}, ${timezone}` : `every ${formatSeconds(every)}`;
}

/** Describe skipped, missed and failed runs; empty if there are none. */
export function lacking({ skipped, missed, failed }: Schedule): string {
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
export function until(moment: string | null, now: number): string {
  if (!moment) return "";
  const left = Math.floor((Date.parse(moment) - now) / 1000);
  return left > 0 ? `in ${formatSeconds(left)}` : "due";
}
