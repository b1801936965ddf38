/** Recent events grouped by job, workflow or worker. Pure functions. */

import { ENDED, type LiveEvent } from "../../../lib/fleet";
import { formatSeconds } from "../../../lib/format";

export interface Happening {
  /** Name of the job, workflow or worker. */
  name: string;
  /** Its latest event. */
  last: LiveEvent;
  text: string;
}

function nameOf({ job, workflow, worker }: LiveEvent): string {
  return job ?? workflow ?? worker ?? "";
}

/** Return the time in ms since 1970 of the last event of a type before an index. */
function before(list: readonly LiveEvent[], place: number, type: string): number | undefined {
  return list.slice(0, place).findLast((event) => event.type === type)?.time;
}

/** Return how long a job waited and ran before an event, as far as known. */
function times(list: readonly LiveEvent[], place: number): string[] {
  const [queued, running] = [before(list, place + 1, "queued"), before(list, place + 1, "running")];
  const { time, type } = list[place] as LiveEvent;
  const waited = queued !== undefined && running !== undefined && running >= queued ? running - queued : undefined;
  const ran = running !== undefined && type !== "running" && type !== "queued" ? time - running : undefined;
  return [
    waited === undefined ? "" : `waited ${formatSeconds(waited / 1000)}`,
    ran === undefined ? "" : `ran ${formatSeconds(ran / 1000)}`,
  ].filter(Boolean);
}

/** Describe an event in words, without its subject. */
export function said({ job, type, state, error }: LiveEvent): string {
  if (!job) return type === "worker" || type === "workflow" ? (state ?? "") : type;
  return `${type}${error ? `: ${error}` : ""}`;
}

function line(list: readonly LiveEvent[]): Happening {
  const place = list.length - 1;
  const last = list[place] as LiveEvent;
  const words = last.job && (ENDED as readonly string[]).includes(last.type) ? times(list, place) : [];
  return { name: nameOf(last), last, text: [said(last), ...words].join(", ") };
}

/** Return up to `most` subjects with recent events, latest first. */
export function happenings(events: readonly LiveEvent[], most: number): Happening[] {
  const bySubject = new Map<string, LiveEvent[]>();
  for (const event of events) {
    const name = nameOf(event);
    if (!name) continue;
    const known = bySubject.get(name) ?? [];
    known.push(event);
    bySubject.set(name, known);
  }
  return [...bySubject.values()]
    .map(line)
    .sort((left, right) => right.last.time - left.last.time)
    .slice(0, most);
}
