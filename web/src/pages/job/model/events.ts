/** Events of one job: past events from its own stream, then new events from the page's stream. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { authorizationHeaders, parseProblem } from "../../../lib/api";
import { createPastEvents, type LiveEvent } from "../../../lib/fleet";
import { events, snapshot } from "../../../lib/live";
import { Parser, type Frame } from "../../../lib/sse";

/** Silence in milliseconds after which all past events have been received. */
const QUIET_MS = 700;

/** Return the event in a frame, or nothing for a frame with the current state, which has no time. */
export function parseFrame(frame: Frame): LiveEvent[] {
  const data = JSON.parse(frame.data) as LiveEvent & { present?: string };
  return data.present ? [] : [{ ...data, id: frame.id, time: Number(frame.id.split("-")[0]) }];
}

/** Merge consecutive progress events into the last one. */
export function condenseProgress(list: readonly LiveEvent[]): LiveEvent[] {
  return list.filter((event, index) => event.type !== "progress" || list[index + 1]?.type !== "progress");
}

export function mergeEvents(past: readonly LiveEvent[], recent: readonly LiveEvent[]): LiveEvent[] {
  const all = new Map([...past, ...recent].map((event) => [`${event.id || event.time} ${event.type}`, event]));
  return condenseProgress([...all.values()].sort((left, right) => left.time - right.time));
}

async function loadPastEvents(id: string, control: AbortController): Promise<LiveEvent[]> {
  const answer = await fetch(`/api/jobs/${id}/events`, {
    headers: { ...authorizationHeaders(), "Last-Event-ID": "0-0" },
    signal: control.signal,
  });
  if (!answer.ok || !answer.body) throw await parseProblem(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  const heard: LiveEvent[] = [];
  let timer = setTimeout(() => control.abort(), QUIET_MS);
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      heard.push(...parser.push(piece.value).flatMap(parseFrame));
      clearTimeout(timer);
      timer = setTimeout(() => control.abort(), QUIET_MS);
    }
  } catch (error) {
    if ((error as Error).name !== "AbortError") throw error;
  } finally {
    clearTimeout(timer);
  }
  return heard;
}

/** Return the events of a job, oldest first. Call `stop` when they are no longer displayed. */
export function followJobEvents(id: string): { list: ReadonlySignal<readonly LiveEvent[]>; stop: () => void } {
  const control = new AbortController();
  const pastEvents = signal<readonly LiveEvent[]>([]);
  loadPastEvents(id, control)
    .then((heard) => (pastEvents.value = heard))
    .catch(() => undefined);
  return {
    list: computed(() => {
      const job = snapshot.value.jobs.get(id)?.value;
      const before = pastEvents.value.length || !job ? pastEvents.value : createPastEvents(job);
      return mergeEvents(
        before,
        events.value.filter((event) => event.job === id && event.id),
      );
    }),
    stop: () => control.abort(),
  };
}
