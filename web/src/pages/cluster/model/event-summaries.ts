/** Recent events grouped by job, workflow or worker. Pure functions. */

import { describeEvent, ENDED, type LiveEvent } from "../../../lib/fleet";
import { formatSeconds } from "../../../lib/format";

export interface EventSummary {
  /** Name of the job, workflow or worker. */
  name: string;
  /** Its latest event. */
  last: LiveEvent;
  text: string;
}

function subjectName({ job, workflow, worker }: LiveEvent): string {
  return job ?? workflow ?? worker ?? "";
}

/** Return the time in ms since 1970 of the last event of a type before an index. */
function lastTimeBefore(list: readonly LiveEvent[], index: number, type: string): number | undefined {
  return list.slice(0, index).findLast((event) => event.type === type)?.time;
}

/** Return how long a job waited and ran before an event, as far as known. */
function describeDurations(list: readonly LiveEvent[], index: number): string[] {
  const [queued, running] = [lastTimeBefore(list, index + 1, "queued"), lastTimeBefore(list, index + 1, "running")];
  const { time, type } = list[index] as LiveEvent;
  const waited = queued !== undefined && running !== undefined && running >= queued ? running - queued : undefined;
  const ran = running !== undefined && type !== "running" && type !== "queued" ? time - running : undefined;
  return [
    waited === undefined ? "" : `waited ${formatSeconds(waited / 1000)}`,
    ran === undefined ? "" : `ran ${formatSeconds(ran / 1000)}`,
  ].filter(Boolean);
}

function summarizeSubject(list: readonly LiveEvent[]): EventSummary {
  const index = list.length - 1;
  const last = list[index] as LiveEvent;
  const words = last.job && (ENDED as readonly string[]).includes(last.type) ? describeDurations(list, index) : [];
  return { name: subjectName(last), last, text: [describeEvent(last), ...words].join(", ") };
}

/** Return up to `limit` subjects with recent events, latest first. */
export function summarizeEvents(events: readonly LiveEvent[], limit: number): EventSummary[] {
  const bySubject = new Map<string, LiveEvent[]>();
  for (const event of events) {
    const name = subjectName(event);
    if (!name) continue;
    const subjectEvents = bySubject.get(name) ?? [];
    subjectEvents.push(event);
    bySubject.set(name, subjectEvents);
  }
  return [...bySubject.values()]
    .map(summarizeSubject)
    .sort((left, right) => right.last.time - left.last.time)
    .slice(0, limit);
}
