/** Events of one job: past ones from its own stream, read once, then those that the page hears anyway. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { authorization, problemOf } from "../../../lib/api";
import type { LiveEvent } from "../../../lib/fleet";
import { events } from "../../../lib/live";
import { Parser, type Frame } from "../../../lib/sse";

/** The past comes at once; after this long without a word there is no more of it. */
const QUIET_MS = 700;

function eventOf(frame: Frame): LiveEvent {
  return { ...JSON.parse(frame.data), id: frame.id, time: Number(frame.id.split("-")[0]) } as LiveEvent;
}

/** Progress between two other events is one line: the last. */
export function condensed(list: readonly LiveEvent[]): LiveEvent[] {
  return list.filter((event, place) => event.type !== "progress" || list[place + 1]?.type !== "progress");
}

export function merged(past: readonly LiveEvent[], recent: readonly LiveEvent[]): LiveEvent[] {
  const all = new Map([...past, ...recent].map((event) => [`${event.id || event.time} ${event.type}`, event]));
  return condensed([...all.values()].sort((left, right) => left.time - right.time));
}

async function history(id: string, control: AbortController): Promise<LiveEvent[]> {
  const answer = await fetch(`/api/jobs/${id}/events`, {
    headers: { ...authorization(), "Last-Event-ID": "0-0" },
    signal: control.signal,
  });
  if (!answer.ok || !answer.body) throw await problemOf(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  const heard: LiveEvent[] = [];
  let timer = setTimeout(() => control.abort(), QUIET_MS);
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      heard.push(...parser.push(piece.value).map(eventOf));
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

/** Events of a job, oldest first; call `stop` when nobody looks any more. */
export function eventsOf(id: string): { list: ReadonlySignal<readonly LiveEvent[]>; stop: () => void } {
  const control = new AbortController();
  const past = signal<readonly LiveEvent[]>([]);
  history(id, control)
    .then((heard) => (past.value = heard))
    .catch(() => undefined);
  return {
    list: computed(() =>
      merged(
        past.value,
        events.value.filter((event) => event.job === id && (event.id || !past.value.length)),
      ),
    ),
    stop: () => control.abort(),
  };
}
