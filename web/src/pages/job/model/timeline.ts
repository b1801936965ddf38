/** Work on one job by lane and time. Pure functions, and the requests for them. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, type Job, type Span, type Stream } from "../../../lib/api";
import { isEnded } from "../../../lib/fleet";
import { follow } from "../../../lib/follow";

export interface JobSpan extends Pick<Span, "start" | "end" | "open" | "units" | "leases"> {
  lost: boolean;
}

export interface LaneRow {
  lane: string;
  spans: JobSpan[];
}

export interface Timeline {
  /** Start and end in seconds since 1970. */
  from: number;
  to: number;
  lanes: LaneRow[];
}

/** Number of seconds for which the cluster stores spans. */
export const STORED_SECONDS = 3600;

/** Return the spans of a job by lane, in the order of their first work. */
export function selectJobSpans(stream: Stream, job: string): Timeline | undefined {
  const rows = new Map<number, LaneRow>();
  const spans = stream.spans.filter((span) => span.job_id === job).sort((left, right) => left.start - right.start);
  for (const { lane, start, end, open, units, leases, lost = false } of spans) {
    const row = rows.get(lane) ?? { lane: stream.lanes[lane]?.lane ?? "", spans: [] };
    row.spans.push({ start, end: open ? stream.to : end, open, units, leases, lost });
    rows.set(lane, row);
  }
  const all = [...rows.values()].flatMap((row) => row.spans);
  if (!all.length) return undefined;
  const [from, to] = [Math.min(...all.map((span) => span.start)), Math.max(...all.map((span) => span.end))];
  return { from, to: Math.max(to, from + 0.001), lanes: [...rows.values()] };
}

/** Return the number of seconds to request; 0 if the cluster has deleted the spans. `now` is in ms since 1970. */
export function secondsToRequest({ started, ended }: Pick<Job, "started" | "ended">, now: number): number {
  if (!started || (ended && now - Date.parse(ended) > STORED_SECONDS * 1000)) return 0;
  return Math.min(STORED_SECONDS, Math.max(1, Math.ceil((now - Date.parse(started)) / 1000) + 5));
}

/** Load the timeline of a job, and load it again while the job is running. */
export function useTimeline(job: Job): Timeline | undefined {
  const timeline = useSignal<Timeline | undefined>(undefined);
  const ended = isEnded(job);
  useEffect(() => {
    const ask = async (signal: AbortSignal) => {
      const seconds = secondsToRequest(job, Date.now());
      if (!seconds) return;
      timeline.value = selectJobSpans(await get<Stream>("/api/stream", { seconds }, signal), job.job_id);
    };
    const follower = follow(ask, () => !ended);
    return follower.stop;
  }, [job.job_id, job.started, ended]);
  return timeline.value;
}
