/** Apply events to the page's model of the cluster. Pure functions. */

import type { Alert, Gpu, Job, JobState, Queue, Snapshot, Status, Worker } from "./api";
import { updatePace, type Pace } from "./pace";
import { isAfter, type Frame } from "./sse";

export const ENDED: readonly JobState[] = ["done", "failed", "cancelled", "skipped"];

export function isEnded(job: Pick<Job, "state">): boolean {
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

/** Describe an event in words, without its subject. */
export function describeEvent({ job, type, state, error }: LiveEvent): string {
  if (!job) return type === "worker" || type === "workflow" ? (state ?? "") : type;
  return `${type}${error ? `: ${error}` : ""}`;
}

/** A queue, with the time of its last update on this machine's clock in ms since 1970. */
export type ReceivedQueue = Queue & { receivedAt?: number };

/** An item that is no longer listed. */
interface Removable {
  gone?: boolean;
}

export interface FleetModel {
  /** Position of the last known event in the stream. */
  position: string;
  /** Position up to which the snapshot contains all events. */
  snapshotPosition: string;
  jobs: Map<string, Job>;
  /** Counts for computing the rate of committed units, keyed by job. */
  paces: Map<string, Pace>;
  status?: Status | undefined;
  queues: ReceivedQueue[];
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
  missingJob?: string;
  /** ID of a known job that was deleted. */
  deletedJob?: string;
  /** True if workers, queues or alerts changed. */
  hasFleetChange?: boolean;
  /** True if the number of waiting jobs changed. */
  hasWaitingChange?: boolean;
  needsSnapshot?: boolean;
}

/** Maximum number of jobs in the model, apart from watched and unfinished jobs. */
export const MAX_JOBS = 1000;

export function createModel(): FleetModel {
  return {
    position: "",
    snapshotPosition: "",
    jobs: new Map(),
    paces: new Map(),
    queues: [],
    workers: [],
    gpus: [],
    alerts: [],
  };
}

/** Update the model from a snapshot, keeping jobs that the snapshot does not contain. */
export function applySnapshot(model: FleetModel, snapshot: Snapshot, at = Date.now()): void {
  const { status, queues, workers, gpus, alerts, stream } = snapshot;
  Object.assign(model, {
    status,
    queues: queues.map((queue) => ({ ...queue, receivedAt: at })),
    workers,
    gpus,
    alerts,
    snapshotPosition: stream,
  } satisfies Partial<FleetModel>);
  if (!model.position || isAfter(stream, model.position)) model.position ||= stream;
  for (const job of snapshot.jobs) model.jobs.set(job.job_id, job);
}

/** Create events from a job's timestamps, for the time before the stream started. */
export function createPastEvents(job: Job): LiveEvent[] {
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

function progressRatio(done: number | string, total: number | string): number {
  return Number(total) > 0 ? Number(done) / Number(total) : 0;
}

function remainingSeconds(done: number | string, total: number | string, rate: number | null): number | null {
  return rate ? Math.max(0, Number(total) - Number(done)) / rate : null;
}

/** Return a job updated by an event. `rate` is in units/s, or null if it is not known yet. */
export function updateJob(job: Job, event: LiveEvent, rate: number | null = null): Job {
  const state = (event.state ?? job.state) as JobState;
  const isRunning = state === "running" || state === "cancelling";
  const currentRate = isRunning ? (rate ?? job.rate) : null;
  const done = event.done ?? job.done;
  const total = event.total ?? job.total;
  return {
    ...job,
    state,
    done,
    total,
    rate: currentRate,
    progress: progressRatio(done, total),
    eta_seconds: remainingSeconds(done, total, currentRate),
    waiting_because: event.type === "progress" || ENDED.includes(state) ? null : job.waiting_because,
    error: event.error ?? (state === "failed" ? job.error : null),
  };
}

/**
 * Return a job from the API, with the rate that the page measured if the API has none yet. Without live workers, omit
 * the rate and the remaining time, because the API's rate is an average that falls slowly.
 */
export function mergeJob(job: Job, previous: Job | undefined, workers = 1): Job {
  if (!workers) return { ...job, rate: null, eta_seconds: null };
  if (job.rate !== null || job.waiting_because || job.state !== previous?.state) return job;
  return { ...job, rate: previous.rate };
}

/**
 * Return how many ms the cluster's clock was ahead of `at` when it created this job record; undefined unless it is
 * running.
 */
export function clockOffset({ started, ended: end, seconds }: Job, at: number): number | undefined {
  return started && !end && seconds !== null ? Date.parse(started) + seconds * 1000 - at : undefined;
}

/** Return units/s by kind, or nothing without live workers, because the API's rates are averages that fall slowly. */
export function kindSpeeds(status: Pick<Status, "units_per_second">, workers: number): [string, number][] {
  return workers ? Object.entries(status.units_per_second) : [];
}

/** Explain why no speed is shown: no running job, no live worker, or no committed work yet. */
export function explainMissingSpeed(status: Pick<Status, "jobs">, workers: number): string {
  if (!status.jobs.running) return "no running jobs";
  return workers ? "not measured yet" : "no live worker";
}

/**
 * Return the seconds from a job's start to its end or to `at` (cluster time in ms since 1970), at least the value from
 * the API. Null before the start.
 */
export function runSeconds({ started, ended: end, seconds }: Job, at: number): number | null {
  return started && !end && seconds !== null ? Math.max(seconds, (at - Date.parse(started)) / 1000) : seconds;
}

/** Return how many seconds the oldest job of a queue has waited at a time in ms since 1970; 0 for an empty queue. */
export function queueWait({ jobs, oldest_wait_seconds: reportedWait, receivedAt }: ReceivedQueue, at: number): number {
  return jobs ? reportedWait + Math.max(0, at - (receivedAt ?? at)) / 1000 : 0;
}

/** Return the longest wait in seconds of all queues. */
export function oldestWait(queues: readonly ReceivedQueue[], at: number): number {
  return Math.max(0, ...queues.map((queue) => queueWait(queue, at)));
}

function parseEvent(frame: Frame): LiveEvent {
  const data = JSON.parse(frame.data) as Record<string, unknown>;
  return {
    ...data,
    id: frame.id,
    type: String(data.type ?? frame.event),
    time: Number(frame.id.split("-")[0]) || Date.now(),
  };
}

/** Apply an event of /api/events to the model. */
export function applyEvent(model: FleetModel, frame: Frame, at = Date.now()): Change {
  if (frame.event === "resync") return { needsSnapshot: true };
  if (frame.event === "fleet" || frame.event === "queue" || frame.event === "alert")
    return applyRecord(model, frame, at);
  const event = parseEvent(frame);
  if (frame.id) model.position = frame.id;
  if (!event.job) return { event };
  if (frame.id && model.snapshotPosition && !isAfter(frame.id, model.snapshotPosition)) return { event };
  return applyJobEvent(model, event, event.job);
}

function applyJobEvent(model: FleetModel, event: LiveEvent, id: string): Change {
  const job = model.jobs.get(id);
  if (event.type === "deleted") {
    model.jobs.delete(id);
    model.paces.delete(id);
    return job ? { event, deletedJob: id } : { event };
  }
  if (!job) return { event, missingJob: id };
  const isProgress = event.type === "progress";
  if (isProgress && Number(event.done) < Number(job.done)) return { event };
  const pace = updatePace(isProgress ? model.paces.get(id) : undefined, Number(event.done), event.time);
  model.paces.set(id, pace);
  const next = updateJob(job, event, pace.rate);
  model.jobs.set(id, next);
  if (isEnded(next)) model.paces.delete(id);
  return isProgress ? { event, job: id } : { event, job: id, missingJob: id };
}

function applyRecord(model: FleetModel, frame: Frame, at: number): Change {
  const data = JSON.parse(frame.data) as (Worker | Alert | Queue) & Removable;
  if (frame.event === "fleet") return applyWorker(model, data as Worker);
  if (frame.event === "alert") {
    model.alerts = replaceItem(model.alerts, data as Alert, (alert) => alert.id);
    return { hasFleetChange: true };
  }
  const previousJobs = model.queues.find((queue) => queue.queue === (data as Queue).queue)?.jobs;
  model.queues = replaceItem(model.queues, { ...(data as Queue), receivedAt: at }, (queue) => queue.queue);
  return { hasFleetChange: true, hasWaitingChange: previousJobs !== (data as Queue).jobs };
}

/** Return True if a worker can accept more work, which affects the reasons of waiting jobs. */
function hasCapacity(worker: Worker | undefined): boolean {
  return worker?.live === true && !worker.draining && worker.busy_lanes < worker.lanes;
}

function applyWorker(model: FleetModel, worker: Worker & Removable): Change {
  const previous = model.workers.find((each) => each.id === worker.id);
  model.workers = replaceItem(model.workers, worker, (each) => each.id);
  model.gpus = listGpus(model.workers);
  const isChanged = previous?.live !== worker.live || hasCapacity(previous) !== hasCapacity(worker);
  return {
    hasFleetChange: true,
    hasWaitingChange:
      isChanged && [...model.jobs.values()].some((job) => job.state === "queued" || job.waiting_because),
  };
}

/** Return the IDs of running jobs. */
export function runningJobs(model: FleetModel): string[] {
  const jobs = [...model.jobs.values()];
  return jobs.filter((job) => job.state === "running" && !job.waiting_because).map((job) => job.job_id);
}

/** Return the items with one item replaced in place, appended or removed; the order of listed items never changes. */
export function replaceItem<T>(items: readonly T[], item: T & Removable, name: (item: T) => string): T[] {
  const isOther = (other: T) => name(other) !== name(item);
  if (item.gone) return items.filter(isOther);
  return items.some((other) => !isOther(other))
    ? items.map((other) => (isOther(other) ? other : item))
    : [...items, item];
}

/** Return the job that uses a GPU. A runner executes several jobs, so it reports the job of each GPU. */
function findGpuJob(gpu: NonNullable<Worker["gpus"]>[number], worker: Worker): string | null {
  if (!worker.live) return null;
  return worker.device === "runner" ? (gpu.job ?? null) : worker.job;
}

/** Return the GPUs of all workers with their owners. */
export function listGpus(workers: readonly Worker[]): Gpu[] {
  return workers.flatMap((worker) =>
    (worker.gpus ?? []).map(
      (gpu) => ({ ...gpu, worker: worker.id, live: worker.live, job: findGpuJob(gpu, worker) }) as Gpu,
    ),
  );
}

/** Return the IDs of ended jobs beyond the limit, oldest first; `isKept` returns true for jobs that must stay. */
export function surplusJobs(model: FleetModel, isKept: (id: string) => boolean, limit = MAX_JOBS): string[] {
  if (model.jobs.size <= limit) return [];
  const old = [...model.jobs.values()].filter((job) => isEnded(job) && !isKept(job.job_id));
  old.sort((left, right) => (left.created < right.created ? -1 : 1));
  return old.slice(0, model.jobs.size - limit).map((job) => job.job_id);
}
