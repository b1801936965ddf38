/** The worker stream as rectangles: lanes from top to bottom, time from left to right. Pure functions. */

import type { Span, Stream } from "../../../lib/api";

export interface Frame {
  left: number;
  top: number;
  width: number;
  /** Height of one lane. */
  lane: number;
  /** Time at the left and right edge in seconds since 1970. */
  from: number;
  to: number;
}

/** Age in seconds above which a response is outdated. */
const FRESH_SECONDS = 8;

/** Return the height of a lane in pixels: few lanes leave space for names, hundreds fit on a screen. */
export function laneHeight(lanes: number): number {
  return Math.max(4, Math.min(34, Math.floor(320 / Math.max(1, lanes))));
}

/**
 * Return, for each lane, the time up to which its work is known: now, the last heartbeat of a silent worker, or the
 * time of an old response. `now` is cluster time in seconds since 1970.
 */
export function laneKnownUntil(stream: Stream, now: number, live = true): number[] {
  const all = live && now - stream.to <= FRESH_SECONDS ? now : stream.to;
  return stream.lanes.map(({ silent_since: silent }) => Math.min(all, silent ?? all));
}

/**
 * Move the spans of small jobs to the first lane of their worker. A worker computes small jobs between leases, and the
 * response lists them under the name of the worker, which is not another lane.
 */
export function foldSmallJobs(stream: Stream): Stream {
  const numbers = new Map(stream.lanes.map(({ lane }, number) => [lane, number]));
  const targets = stream.lanes.map(({ lane, worker }, number) =>
    lane === worker ? (numbers.get(`${worker}/0`) ?? number) : number,
  );
  const kept = [...new Set(targets)].sort((left, right) => left - right);
  const places = targets.map((target) => kept.indexOf(target));
  return {
    ...stream,
    lanes: kept.map((number) => stream.lanes[number] as Stream["lanes"][number]),
    spans: stream.spans.map((span) => ({ ...span, lane: places[span.lane] ?? span.lane })),
  };
}

export function timeToX(time: number, frame: Frame): number {
  return frame.left + ((time - frame.from) / (frame.to - frame.from)) * frame.width;
}

/** Return the left and right edge in pixels; undefined outside the frame. Open spans extend up to the known time. */
export function spanEdges(span: Span, frame: Frame, known = frame.to): [number, number] | undefined {
  const end = span.open ? Math.min(frame.to, Math.max(span.start, known)) : span.end;
  if (end <= frame.from || span.start >= frame.to) return undefined;
  const from = Math.max(frame.left, timeToX(span.start, frame));
  return [from, Math.max(from + 1, Math.min(frame.left + frame.width, timeToX(end, frame)))];
}

/** Return the span at a point, or the latest of several within a pixel. */
export function spanAt(
  stream: Stream,
  x: number,
  y: number,
  frame: Frame,
  known: readonly number[] = [],
): Span | undefined {
  const lane = Math.floor((y - frame.top) / frame.lane);
  return stream.spans.findLast((span) => {
    const box = span.lane === lane ? spanEdges(span, frame, known[lane]) : undefined;
    return box && x >= box[0] - 1 && x <= box[1] + 1;
  });
}

/** Return the seconds of a span between `from` and `to`; open spans end at the known time. */
function secondsInside(span: Span, from: number, to: number, known = to): number {
  return Math.max(0, Math.min(span.open ? Math.min(to, known) : span.end, to) - Math.max(span.start, from));
}

/** Return the share of the time between `from` and `to` in which each lane was computing. */
export function busyShares(stream: Stream, from: number, to: number, known: readonly number[] = []): number[] {
  const seconds = stream.lanes.map(() => 0);
  for (const span of stream.spans)
    seconds[span.lane] = (seconds[span.lane] ?? 0) + secondsInside(span, from, to, known[span.lane]);
  return seconds.map((each) => Math.min(1, each / Math.max(1e-9, to - from)));
}

/** Label for work that this token must not see. */
export const HIDDEN_WORK = "other tenants or small jobs";

/** Return the job of a span (empty for several jobs) and its kind. */
function spanWork(span: Span): [job: string, kind: string] {
  return [span.job_id ?? "", span.untold ? HIDDEN_WORK : (span.type ?? "several kinds")];
}

/** Work of a span: one job, or several small jobs of a kind with an empty name. */
export interface WorkShare {
  job: string;
  kind: string;
  /** Share of the computing time of all lanes. */
  share: number;
}

/** Return the work in a stream, sorted by lane time in descending order. */
export function sumWork(stream: Stream, from: number, to: number, known: readonly number[] = []): WorkShare[] {
  const found = new Map<string, WorkShare>();
  let all = 0;
  for (const span of stream.spans) {
    const seconds = secondsInside(span, from, to, known[span.lane]);
    const [job, kind] = spanWork(span);
    const name = job || `/${kind}`;
    found.set(name, { job, kind, share: (found.get(name)?.share ?? 0) + seconds });
    all += seconds;
  }
  return [...found.values()]
    .map((work) => ({ ...work, share: work.share / Math.max(1e-9, all) }))
    .sort((left, right) => right.share - left.share);
}

/**
 * Return the color index of each job. A job keeps its index while the stream shows it, and new jobs get the first free
 * index in the order of their start.
 */
export function assignPositions(stream: Stream, before: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const began = [...stream.spans].sort((left, right) => left.start - right.start);
  const jobs = new Set(began.flatMap((span) => span.job_id ?? []));
  const positions = new Map([...before].filter(([job]) => jobs.has(job)));
  const used = new Set(positions.values());
  let free = 0;
  for (const job of jobs) {
    if (positions.has(job)) continue;
    while (used.has(free)) free += 1;
    used.add(free);
    positions.set(job, free);
  }
  return positions;
}

/** Consecutive spans of one job on one lane, which share a name label. */
export interface Run {
  lane: number;
  job: string;
  kind: string;
  start: number;
  end: number;
}

const GAP_SECONDS = 2;

export function findRuns(stream: Stream, to: number, known: readonly number[] = []): Run[] {
  const runs: Run[] = [];
  const latest = new Map<number, Run>();
  for (const span of stream.spans) {
    const end = span.open ? Math.min(to, known[span.lane] ?? to) : span.end;
    const [job, kind] = spanWork(span);
    const before = latest.get(span.lane);
    if (before?.job === job && before.kind === kind && span.start - before.end <= GAP_SECONDS) {
      before.end = Math.max(before.end, end);
      continue;
    }
    const run = { lane: span.lane, job, kind, start: span.start, end };
    latest.set(span.lane, run);
    runs.push(run);
  }
  return runs;
}
