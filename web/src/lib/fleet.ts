/** Apply events to the page's model of the cluster. Pure functions. */

import type { Alert, Gpu, Job, JobState, Queue, Snapshot, Status, Worker } from "./api";
import { paced, type Pace } from "./pace";
import { after, type Frame } from "./sse";

export const ENDED: readonly JobState[] = ["done", "failed", "cancelled", "skipped"];

export function ended(job: Pick<Job, "state">): boolean {
  return ENDED.includes(job.state);
}

/** An event of the stream. */
export interface LiveEvent {
  id: string;
  /** Cluster time of the event in ms since 1970. */
  time: number;
  type: string;
  job?: string;
  kind?: string;
  state?: string;
  worker?: string;
  workflow?: string;
  error?: string;
  done?: number | string;
  total?: number | string;
}

/** A queue, with the time of its last update on this machine's clock in ms since 1970. */
export type HeardQueue = Queue & { heard?: number };

/** An item that is no longer listed. */
interface Gone {
  gone?: boolean;
}

export interface Model {
  /** Position of the last known event in the stream. */
  at: string;
  /** Position up to which the snapshot contains all events. */
  covered: string;
  jobs: Map<string, Job>;
  /** Counts for computing the rate of committed units, keyed by job. */
  paces: Map<string, Pace>;
  status?: Status | undefined;
  queues: HeardQueue[];
  workers: Worker[];
  gpus: Gpu[];
  alerts: Alert[];
}

/** Changes caused by an event. */
export interface Change {
  event?: LiveEvent;
  /** ID of a job that changed in the model. */
  job?: string;
  /** ID of a job to request in full, because it is unknown or the event lacks its changes. */
  ask?: string;
  /** ID of a known job that was deleted. */
  deleted?: string;
  /** True if workers, queues or alerts changed. */
  rows?: boolean;
  /** True if the number of waiting jobs changed. */
  waits?: boolean;
  resync?: boolean;
}

/** Maximum number of jobs in the model, apart from watched and unfinished jobs. */
export const MOST_JOBS = 1000;

export function empty(): Model {
  return { at: "", covered: "", jobs: new Map(), paces: new Map(), queues: [], workers: [], gpus: [], alerts: [] };
}

/** Update the model from a snapshot, keeping jobs that the snapshot does not contain. */
export function take(model: Model, snapshot: Snapshot, at = Date.now()): void {
  const { status, queues, workers, gpus, alerts, stream } = snapshot;
  Object.assign(model, {
    status,
    queues: queues.map((queue) => ({ ...queue, heard: at })),
    workers,
    gpus,
    alerts,
    covered: stream,
  });
  if (!model.at || after(stream, model.at)) model.at ||= stream;
  for (const job of snapshot.jobs) model.jobs.set(job.job_id, job);
}

/** Create events from a job's timestamps, for the time before the stream started. */
export function past(job: Job): LiveEvent[] {
  const { job_id, type: kind, done, total, error } = job;
  const common = { id: "", job: job_id, kind, total };
  const events: LiveEvent[] = [{ ...common, type: "queued", state: "queued", done: 0, time: Date.parse(job.created) }];
  if (job.started)
    events.push({ ...common, type: "running", state: "running", done: 0, time: Date.parse(job.started) });
  if (job.ended)
    events.push({
      ...common,
      type: job.state,
      state: job.state,
      done,
      time: Date.parse(job.ended),
      ...(error ? { error } : {}),
    });
  return events;
}

function share(done: number | string, total: number | string): number {
  return Number(total) > 0 ? Number(done) / Number(total) : 0;
}

function eta(done: number | string, total: number | string, rate: number | null): number | null {
  return rate ? Math.max(0, Number(total) - Number(done)) / rate : null;
}

/** Return a job updated by an event. `rate` is in units/s, or null if it is not known yet. */
export function moved(job: Job, event: LiveEvent, rate: number | null = null): Job {
  const state = (event.state ?? job.state) as JobState;
  const works = state === "running" || state === "cancelling";
  const now = works ? (rate ?? job.rate) : null;
  const done = event.done ?? job.done;
  const total = event.total ?? job.total;
  return {
    ...job,
    state,
    done,
    total,
    rate: now,
    progress: share(done, total),
    eta_seconds: eta(done, total, now),
    waiting_because: event.type === "progress" || ENDED.includes(state) ? null : job.waiting_because,
    error: event.error ?? (state === "failed" ? job.error : null),
  };
}

/**
 * Return a job from the API, with the rate that the page measured if the API has none yet. Without live workers, omit
 * the rate and the remaining time, because the API's rate is an average that falls slowly.
 */
export function adopted(job: Job, before: Job | undefined, workers = 1): Job {
  if (!workers) return { ...job, rate: null, eta_seconds: null };
  if (job.rate !== null || job.waiting_because || job.state !== before?.state) return job;
  return { ...job, rate: before.rate };
}

/**
 * Return how many ms the cluster's clock was ahead of `at` when it created this job record; undefined unless it is
 * running.
 */
export function clockAhead({ started, ended: end, seconds }: Job, at: number): number | undefined {
  return started && !end && seconds !== null ? Date.parse(started) + seconds * 1000 - at : undefined;
}

/** Return units/s by kind, or nothing without live workers, because the API's rates are averages that fall slowly. */
export function speedsOf(status: Pick<Status, "units_per_second">, workers: number): [string, number][] {
  return workers ? Object.entries(status.units_per_second) : [];
}

/** Explain why no speed is shown: no running job, no live worker, or no committed work yet. */
export function whyNoSpeed(status: Pick<Status, "jobs">, workers: number): string {
  if (!status.jobs.running) return "nothing runs";
  return workers ? "not measured yet" : "no live worker";
}

/**
 * Return the seconds from a job's start to its end or to `at` (cluster time in ms since 1970), at least the value from
 * the API. Null before the start.
 */
export function secondsRun({ started, ended: end, seconds }: Job, at: number): number | null {
  return started && !end && seconds !== null ? Math.max(seconds, (at - Date.parse(started)) / 1000) : seconds;
}

/** Return how many seconds the oldest job of a queue has waited at a time in ms since 1970; 0 for an empty queue. */
export function waitOf({ jobs, oldest_wait_seconds: told, heard }: HeardQueue, at: number): number {
  return jobs ? told + Math.max(0, at - (heard ?? at)) / 1000 : 0;
}

/** Return the longest wait in seconds of all queues. */
export function oldestWait(queues: readonly HeardQueue[], at: number): number {
  return Math.max(0, ...queues.map((queue) => waitOf(queue, at)));
}

function event(frame: Frame): LiveEvent {
  const data = JSON.parse(frame.data) as Record<string, unknown>;
  return {
    ...data,
    id: frame.id,
    type: String(data.type ?? frame.event),
    time: Number(frame.id.split("-")[0]) || Date.now(),
  };
}

/** Apply an event of /api/events to the model. */
export function apply(model: Model, frame: Frame, at = Date.now()): Change {
  if (frame.event === "resync") return { resync: true };
  if (frame.event === "fleet" || frame.event === "queue" || frame.event === "alert") return row(model, frame, at);
  const heard = event(frame);
  if (frame.id) model.at = frame.id;
  if (!heard.job) return { event: heard };
  if (frame.id && model.covered && !after(frame.id, model.covered)) return { event: heard };
  return happened(model, heard, heard.job);
}

function happened(model: Model, heard: LiveEvent, id: string): Change {
  const known = model.jobs.get(id);
  if (heard.type === "deleted") {
    model.jobs.delete(id);
    model.paces.delete(id);
    return known ? { event: heard, deleted: id } : { event: heard };
  }
  if (!known) return { event: heard, ask: id };
  const progress = heard.type === "progress";
  if (progress && Number(heard.done) < Number(known.done)) return { event: heard };
  const pace = paced(progress ? model.paces.get(id) : undefined, Number(heard.done), heard.time);
  model.paces.set(id, pace);
  const next = moved(known, heard, pace.rate);
  model.jobs.set(id, next);
  if (ended(next)) model.paces.delete(id);
  return progress ? { event: heard, job: id } : { event: heard, job: id, ask: id };
}

function row(model: Model, frame: Frame, at: number): Change {
  const data = JSON.parse(frame.data) as (Worker | Alert | Queue) & Gone;
  if (frame.event === "fleet") return workerRow(model, data as Worker);
  if (frame.event === "alert") {
    model.alerts = placed(model.alerts, data as Alert, (alert) => alert.id);
    return { rows: true };
  }
  const before = model.queues.find((queue) => queue.queue === (data as Queue).queue)?.jobs;
  model.queues = placed(model.queues, { ...(data as Queue), heard: at }, (queue) => queue.queue);
  return { rows: true, waits: before !== (data as Queue).jobs };
}

/** Return True if a worker can accept more work, which affects the reasons of waiting jobs. */
function hasRoom(worker: Worker | undefined): boolean {
  return worker?.live === true && !worker.draining && worker.busy_lanes < worker.lanes;
}

function workerRow(model: Model, worker: Worker & Gone): Change {
  const before = model.workers.find((each) => each.id === worker.id);
  model.workers = placed(model.workers, worker, (each) => each.id);
  model.gpus = gpus(model.workers);
  const other = before?.live !== worker.live || hasRoom(before) !== hasRoom(worker);
  return {
    rows: true,
    waits: other && [...model.jobs.values()].some((job) => job.state === "queued" || job.waiting_because),
  };
}

/** Return the IDs of running jobs. */
export function beingComputed(model: Model): string[] {
  const jobs = [...model.jobs.values()];
  return jobs.filter((job) => job.state === "running" && !job.waiting_because).map((job) => job.job_id);
}

/** Return the items with one item replaced in place, appended or removed; the order of listed items never changes. */
export function placed<T>(rows: readonly T[], row: T & Gone, name: (row: T) => string): T[] {
  const others = (each: T) => name(each) !== name(row);
  if (row.gone) return rows.filter(others);
  return rows.some((each) => !others(each)) ? rows.map((each) => (others(each) ? each : row)) : [...rows, row];
}

/** Return the GPUs of all workers with their owners. */
export function gpus(workers: readonly Worker[]): Gpu[] {
  return workers.flatMap((worker) =>
    (worker.gpus ?? []).map(
      (gpu) => ({ ...gpu, worker: worker.id, live: worker.live, job: worker.live ? worker.job : null }) as Gpu,
    ),
  );
}

/** Return the IDs of ended jobs beyond the limit, oldest first; `kept` marks jobs that must stay. */
export function surplus(model: Model, kept: (id: string) => boolean, most = MOST_JOBS): string[] {
  if (model.jobs.size <= most) return [];
  const old = [...model.jobs.values()].filter((job) => ended(job) && !kept(job.job_id));
  old.sort((left, right) => (left.created < right.created ? -1 : 1));
  return old.slice(0, model.jobs.size - most).map((job) => job.job_id);
}
