/** Events of one job: past ones from its own stream, read once, then those that the page hears anyway. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { authorization, problemOf } from "../../../lib/api";
import { past, type LiveEvent } from "../../../lib/fleet";
import { events, snapshot } from "../../../lib/live";
import { Parser, type Frame } from "../../../lib/sse";

/** The past comes at once; after this long without a word there is no more of it. */
const QUIET_MS = 700;

/** What a frame tells; nothing where it is the state of the moment: that has no time of its own. */
export function eventsOfFrame(frame: Frame): LiveEvent[] {
  const data = JSON.parse(frame.data) as LiveEvent & { present?: string };
  return data.present ? [] : [{ ...data, id: frame.id, time: Number(frame.id.split("-")[0]) }];
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
      heard.push(...parser.push(piece.value).flatMap(eventsOfFrame));
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
  const told = signal<readonly LiveEvent[]>([]);
  history(id, control)
    .then((heard) => (told.value = heard))
    .catch(() => undefined);
  return {
    list: computed(() => {
      const job = snapshot.value.jobs.get(id)?.value;
      const before = told.value.length || !job ? told.value : past(job);
      return merged(
        before,
        events.value.filter((event) => event.job === id && event.id),
      );
    }),
    stop: () => control.abort(),
  };
}
