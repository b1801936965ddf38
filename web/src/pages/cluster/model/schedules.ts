/** Schedules as the API tells them. Pure but for the questions. */

import { del, get, post, type Schedule } from "../../../lib/api";
import { seconds } from "../../../lib/format";

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
  return del(path(name));
}

/** What may be done about a schedule, in the order of its buttons. */
export function scheduleVerbs({ state }: Pick<Schedule, "state">): ScheduleVerb[] {
  if (state === "ended") return ["run"];
  return [state === "paused" ? "resume" : "pause", "run"];
}

/** When it runs: `every 1 h`, `0 3 * * *, Europe/Berlin`. */
export function times({ every_seconds: every, cron, timezone }: Schedule): string {
  return cron ? `${cron}, ${timezone}` : `every ${seconds(every)}`;
}

/** Runs that did not come about, in words; empty where all did. */
export function lacking({ skipped, missed, failed }: Schedule): string {
  const counts: [number, string][] = [
    [failed, "refused"],
    [missed, "missed"],
    [skipped, "left out"],
  ];
  return counts
    .filter(([count]) => count)
    .map(([count, word]) => `${count} ${word}`)
    .join(", ");
}

/** How long it is until a moment: `in 3 min`, or `due` once it has passed. */
export function until(moment: string | null, now: number): string {
  if (!moment) return "";
  const left = Math.floor((Date.parse(moment) - now) / 1000);
  return left > 0 ? `in ${seconds(left)}` : "due";
}
