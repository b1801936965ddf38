/** State of the cluster as signals, updated by one event stream per tab. Call `startLive()` once. */

import { batch, computed, signal, type Signal } from "@preact/signals";
import { isListed } from "../kinds";
import { ageOf, OLD_MS, type Connection } from "./age";
import {
  getOnce,
  authorizationHeaders,
  get,
  needsToken,
  onSuspicion,
  Problem,
  parseProblem,
  waitForLogin,
  unreadableResponse,
  type Alert,
  type Gpu,
  type Job,
  type Jobs,
  type Snapshot,
  type Status,
  type Worker,
} from "./api";
import {
  mergeJob,
  applyEvent,
  clockOffset,
  runningJobs,
  createModel,
  isEnded,
  MAX_JOBS,
  createPastEvents,
  surplusJobs,
  applySnapshot,
  type Change,
  type ReceivedQueue,
  type LiveEvent,
} from "./fleet";
import { runInSlot } from "./stream-slots";
import { Ring } from "./ring";
import { Parser, type Frame } from "./sse";

export interface Fleet {
  status: Status | undefined;
  queues: readonly ReceivedQueue[];
  workers: readonly Worker[];
  gpus: readonly Gpu[];
  alerts: readonly Alert[];
  /** Jobs by ID, each with its own signal, so that a changed job redraws only itself. */
  jobs: ReadonlyMap<string, Signal<Job>>;
}

export const connection = signal<Connection>("connecting");
/** Reason why the connection is not live. */
export const connectionProblem = signal("");
/** Time of the next attempt in ms since 1970, while reconnecting. */
export const retryAt = signal(0);
/** Time of the last message from the cluster in ms since 1970. */
export const lastMessageAt = signal(0);
/** Current time in ms since 1970, updated every second while the page is visible, for ages and countdowns. */
export const now = signal(Date.now());
/** Age of the displayed data. Unless it is live, pictures are gray and the time after `lastMessageAt` is unknown. */
export const age = computed(() => ageOf(connection.value, lastMessageAt.value, now.value));
/** Time up to which the displayed data is known in ms since 1970. */
export const knownUntil = computed(() => (age.value === "live" ? now.value : lastMessageAt.value));
export const snapshot = signal<Fleet>({
  status: undefined,
  queues: [],
  workers: [],
  gpus: [],
  alerts: [],
  jobs: new Map(),
});
/** False until the first snapshot has arrived. */
export const hasSnapshot = signal(false);
/** Jobs that were displayed and no longer exist, with the API's reason. */
export const missingJobs = signal<ReadonlyMap<string, Problem>>(new Map());
/** Recent events, oldest first. */
export const events = signal<readonly LiveEvent[]>([]);

const TOPICS = "jobs,workers,workflows,fleet,queues,alerts";
const DISCONNECT_MS = 40_000;
/** Minimum interval in milliseconds between updates of the signals. */
const FLUSH_MS = 250;
/** Delay in milliseconds before requesting counts by state and waiting reasons, which events do not contain. */
const COUNT_DELAY_MS = 400;
const COUNT_INTERVAL_MS = 2000;
/** Time in milliseconds after which a hidden page closes its connection: browsers allow six per host. */
const HIDDEN_MS = 60_000;
/** Time in milliseconds that a stream stays open when other tabs use all permitted streams. */
const SHORT_STREAM_MS = 1000;
const SHORT_STREAM_INTERVAL_MS = 3000;
const SHORT_STREAM_TEXT = "following the cluster every few seconds: other tabs of this browser have its connections";
/** Silence in milliseconds after which a running job is requested, because it may have returned to its queue. */
const QUIET_MS = 3000;
/** Maximum number of jobs that are requested individually rather than as a list. */
const MAX_SINGLE_REQUESTS = 4;

const model = createModel();
const log = new Ring<LiveEvent>(500);
const jobs = new Map<string, Signal<Job>>();
const watchedJobs = new Set<string>();
const changedJobs = new Set<string>();
const requestedJobs = new Set<string>();
/** Time of the last message about each running job, or of its last request, in ms since 1970. */
const lastJobMessages = new Map<string, number>();
let jobCapacity = MAX_JOBS;
let isFleetChanged = false;
let isLogChanged = false;
let flushTimer = 0;
let requestTimer = 0;
let currentConnection: AbortController | undefined;
let attempt = 0;
let wakeUp: (() => void) | undefined;
let isStarted = false;

// -- from the model to the signals ----------------------------------------------------------------------------------

function scheduleFlush(): void {
  flushTimer ||= window.setTimeout(flush, FLUSH_MS);
}

function flush(): void {
  flushTimer = 0;
  batch(() => {
    let isChanged = isFleetChanged;
    for (const id of changedJobs) isChanged = publish(id) || isChanged;
    for (const id of surplusJobs(model, (id) => watchedJobs.has(id), jobCapacity)) {
      model.jobs.delete(id);
      isChanged = jobs.delete(id) || isChanged;
    }
    if (isChanged) {
      const { status, queues, workers, gpus, alerts } = model;
      snapshot.value = { status, queues, workers, gpus, alerts, jobs: new Map(jobs) };
    }
    if (isLogChanged) events.value = log.toArray();
  });
  changedJobs.clear();
  isFleetChanged = isLogChanged = false;
}

/** Copy a job to its signal. Returns true if the signal is new. */
function publish(id: string): boolean {
  const job = model.jobs.get(id);
  lastJobMessages.set(id, Date.now());
  if (!job) return jobs.delete(id);
  const jobSignal = jobs.get(id);
  if (jobSignal) jobSignal.value = job;
  else jobs.set(id, signal(job));
  return !jobSignal;
}

// -- requests for data that events do not contain -------------------------------------------------------------------

function requestJob(id: string): void {
  requestedJobs.add(id);
  requestTimer ||= window.setTimeout(() => void sendJobRequests(), 300);
}

async function sendJobRequests(): Promise<void> {
  const ids = [...requestedJobs];
  requestedJobs.clear();
  try {
    const records =
      ids.length <= MAX_SINGLE_REQUESTS ? await requestJobs(ids) : (await get<Jobs>("/api/jobs", { limit: 200 })).jobs;
    for (const job of records) if (isListed(job.type) || watchedJobs.has(job.job_id)) storeJob(job);
  } catch {
    // The stream detects the same failure, and its next snapshot contains the missing data.
  }
  requestTimer = requestedJobs.size ? window.setTimeout(() => void sendJobRequests(), 1000) : 0;
}

async function requestJobs(ids: string[]): Promise<Job[]> {
  const results = await Promise.allSettled(ids.map((id) => get<Job>(`/api/jobs/${id}`)));
  for (const [index, result] of results.entries()) {
    if (result.status === "rejected" && result.reason instanceof Problem && result.reason.status === 404)
      forgetJob(ids[index] as string, result.reason);
  }
  return results.filter((result) => result.status === "fulfilled").map((result) => result.value);
}

/** Forget a job that no longer exists. */
export function forgetJob(id: string, problem: Problem): void {
  removeJob(id, problem);
  flush();
}

function removeJob(id: string, problem: Problem): void {
  // Keep an earlier reason such as a deletion, which is more specific.
  if (!missingJobs.peek().has(id)) missingJobs.value = new Map(missingJobs.peek()).set(id, problem);
  model.jobs.delete(id);
  watchedJobs.delete(id);
  changedJobs.add(id);
}

let countTimer = 0;
let countedAt = 0;

function scheduleCount(): void {
  const wait = Math.max(COUNT_DELAY_MS, countedAt + COUNT_INTERVAL_MS - Date.now());
  countTimer ||= window.setTimeout(() => void requestCounts(), wait);
}

async function requestCounts(): Promise<void> {
  countedAt = Date.now();
  try {
    model.status = await get<Status>("/api/status");
    isFleetChanged = true;
    const hasNoWorker = !model.status.workers.live;
    const waiting = [...model.jobs.values()].filter(
      (job) => job.state === "queued" || job.waiting_because || (hasNoWorker && job.state === "running"),
    );
    for (const job of waiting.slice(0, 100)) requestedJobs.add(job.job_id);
    if (requestedJobs.size) await sendJobRequests();
    scheduleFlush();
  } catch {
    // The stream detects and reports the same failure.
  }
  countTimer = 0;
}

/** Milliseconds by which the cluster's clock is ahead of this machine's, from snapshots and running jobs. */
let clockOffsetMs = 0;

/** Convert a time of this machine's clock to cluster time, both in ms since 1970. */
export function clusterTime(at: number): number {
  return at + clockOffsetMs;
}

/** Update the clock difference from a new job record. */
function readClock(job: Job): void {
  clockOffsetMs = clockOffset(job, Date.now()) ?? clockOffsetMs;
}

/** Store a job record from the API. */
export function storeJob(job: Job): void {
  readClock(job);
  const merged = mergeJob(job, model.jobs.get(job.job_id), model.status?.workers.live);
  if (merged.rate === null) model.paces.delete(job.job_id);
  model.jobs.set(job.job_id, merged);
  changedJobs.add(job.job_id);
  scheduleFlush();
}

/** Increase the number of stored jobs by `count`, after a request for older jobs. */
export function increaseCapacity(count: number): void {
  jobCapacity = Math.max(jobCapacity, jobs.size + count);
}

/** Keep a job in `snapshot.jobs` regardless of its age, and request it if it is unknown. Rejects with a Problem. */
export async function keepJob(id: string): Promise<void> {
  watchedJobs.add(id);
  if (!model.jobs.has(id)) storeJob(await get<Job>(`/api/jobs/${id}`));
}

/** Request a known ended job again: it may have expired, which no event announces. */
export function recheckJob(id: string): void {
  const job = model.jobs.get(id);
  if (job && (isEnded(job) || job.state === "blocked")) requestJob(id);
}

/** Create recent events from the timestamps of the newest jobs. */
function addPastEvents(newest: readonly Job[]): void {
  const recent = newest.flatMap(createPastEvents).sort((left, right) => left.time - right.time);
  for (const event of recent.slice(-100)) log.push(event);
  isLogChanged = true;
}

/** Request the snapshot again, for example after an action on this page. */
export async function loadSnapshot(): Promise<void> {
  const fresh = await getOnce<Snapshot>("/api/snapshot");
  // The Date header is unsuitable: it is a coordinator's own clock.
  clockOffsetMs = fresh.time * 1000 - Date.now();
  applySnapshot(model, fresh);
  for (const job of fresh.jobs) {
    readClock(job);
    changedJobs.add(job.job_id);
  }
  // Watched jobs outside the snapshot may have changed since the last one.
  for (const id of watchedJobs) if (model.jobs.has(id) && !changedJobs.has(id)) requestJob(id);
  isFleetChanged = true;
  if (!hasSnapshot.peek()) addPastEvents(fresh.jobs);
  batch(() => {
    lastMessageAt.value = Date.now();
    hasSnapshot.value = true;
    flush();
  });
}

// -- the stream -----------------------------------------------------------------------------------------------------

function receive(frame: Frame): Change {
  const change = applyEvent(model, frame);
  if (change.event) {
    if (change.event.type !== "progress") log.push(change.event);
    isLogChanged = isLogChanged || change.event.type !== "progress";
  }
  if (change.job) changedJobs.add(change.job);
  if (change.deletedJob)
    removeJob(change.deletedJob, new Problem(404, "Deleted", `job ${change.deletedJob} was deleted`));
  if (change.missingJob) requestJob(change.missingJob);
  if (change.hasFleetChange) isFleetChanged = true;
  if (change.hasWaitingChange || (change.event && change.event.type !== "progress")) scheduleCount();
  scheduleFlush();
  return change;
}

function parseFrames(parser: Parser, piece: string): Frame[] {
  try {
    return parser.push(piece);
  } catch {
    throw unreadableResponse("/api/events");
  }
}

function applyFrame(frame: Frame): Change {
  try {
    return receive(frame);
  } catch {
    throw unreadableResponse("/api/events");
  }
}

/** Read one connection until its end, or for a number of milliseconds. */
async function readStream(controller: AbortController, durationMs?: number): Promise<void> {
  const lastEventId = model.position;
  const response = await fetch(`/api/events?topics=${TOPICS}`, {
    headers: {
      ...authorizationHeaders(),
      Accept: "text/event-stream",
      ...(lastEventId ? { "Last-Event-ID": lastEventId } : {}),
    },
    cache: "no-store",
    signal: controller.signal,
  });
  if (!response.ok || !response.body) throw await parseProblem(response);
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) throw unreadableResponse("/api/events");
  const openedAt = Date.now();
  markLive();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  if (durationMs) setTimeout(() => void reader.cancel().catch(() => undefined), durationMs);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    lastMessageAt.value = Date.now();
    if (connection.value !== "live") markLive();
    if (Date.now() - openedAt > 5000) attempt = 0;
    for (const frame of parseFrames(parser, value)) {
      if (applyFrame(frame).needsSnapshot) await loadSnapshot();
    }
  }
}

/**
 * Follow the stream in one of the permitted slots until the connection ends. Without a free slot, follow it from time
 * to time; each connection first delivers the missed events.
 */
async function followStream(controller: AbortController): Promise<void> {
  while (!(await runInSlot(() => readStream(controller)))) {
    await readStream(controller, SHORT_STREAM_MS);
    attempt = 0;
    connectionProblem.value = SHORT_STREAM_TEXT;
    await waitFor(SHORT_STREAM_INTERVAL_MS, controller.signal);
  }
}

function markLive(): void {
  batch(() => {
    connection.value = "live";
    connectionProblem.value = "";
    lastMessageAt.value = Date.now();
  });
}

/** Return a delay of 1, 2, 4 ... 30 s with jitter, so that clients of a failed coordinator do not reconnect at once. */
export function reconnectDelay(failures: number, random = Math.random()): number {
  return Math.min(30_000, 1000 * 2 ** Math.min(failures, 5)) * (0.5 + random / 2);
}

function explainError(error: unknown): string {
  if (error instanceof Problem) return error.status ? `${error.status}: ${error.detail}` : error.detail;
  return "the connection was lost";
}

async function waitForRetry(): Promise<void> {
  const wait = reconnectDelay(attempt);
  attempt += 1;
  retryAt.value = Date.now() + wait;
  await waitFor(wait);
}

/** Wait for a time, until woken up, or until aborted. */
async function waitFor(ms: number, signal?: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => resolve());
    wakeUp = resolve;
  });
  wakeUp = undefined;
}

/** Wait until the page is visible again. */
function waitUntilVisible(): Promise<void> {
  if (!isAsleep) return Promise.resolve();
  return new Promise((resolve) => {
    wakeUp = resolve;
  });
}

let isAsleep = false;

async function runForever(): Promise<never> {
  for (;;) {
    await waitUntilVisible();
    const controller = new AbortController();
    currentConnection = controller;
    try {
      await loadSnapshot();
      await followStream(controller);
      throw new Problem(0, "Ended", "the cluster closed the connection");
    } catch (error) {
      controller.abort(); // an unread stream would keep its connection, and browsers allow six per host
      if (isAsleep) continue;
      batch(() => {
        const isDenied = needsToken.value || (error instanceof Problem && error.status === 403);
        connectionProblem.value = isDenied ? (error as Error).message : explainError(error);
        connection.value = isDenied ? "denied" : navigator.onLine ? "reconnecting" : "offline";
      });
    }
    if (needsToken.value) await waitForLogin();
    else await waitForRetry();
  }
}

let quietCheckAt = 0;

/** Request the running jobs without recent messages. */
function recheckQuietJobs(): void {
  if (Date.now() - quietCheckAt < QUIET_MS) return;
  quietCheckAt = Date.now();
  const running = new Set(runningJobs(model));
  for (const id of lastJobMessages.keys()) if (!running.has(id)) lastJobMessages.delete(id);
  for (const id of running) {
    if (Date.now() - (lastJobMessages.get(id) ?? 0) < QUIET_MS) continue;
    lastJobMessages.set(id, Date.now());
    requestJob(id);
  }
}

/** Check every second whether the stream is silent. */
function checkSilence(): void {
  const silenceMs = Date.now() - lastMessageAt.value;
  if (connection.value === "live" && silenceMs > OLD_MS) {
    connection.value = "stale";
    connectionProblem.value = "the cluster sent nothing for 20 s";
  }
  if (connection.value === "stale" && silenceMs > DISCONNECT_MS) currentConnection?.abort();
  if (connection.value === "live") recheckQuietJobs();
}

let isChecking = false;

/**
 * Check the cluster after a suspicious response, because a failed stream stays silent for seconds before it ends. Close
 * the stream if the snapshot fails too.
 */
async function checkCluster(problem: Problem): Promise<void> {
  if (isChecking || connection.peek() !== "live") return;
  isChecking = true;
  await loadSnapshot().catch(() => currentConnection?.abort(problem));
  isChecking = false;
}

/** Reconnect immediately. */
export function reconnect(): void {
  attempt = 0;
  wakeUp?.();
}

function sleep(): void {
  isAsleep = true;
  currentConnection?.abort();
}

function leaveSleep(): void {
  now.value = Date.now();
  if (isAsleep) connection.value = "connecting";
  isAsleep = false;
  reconnect();
}

/** Start following the cluster; further calls have no effect. */
export function startLive(): void {
  if (isStarted) return;
  isStarted = true;
  onSuspicion((problem) => void checkCluster(problem));
  let hideTimer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hideTimer);
    if (document.hidden) hideTimer = window.setTimeout(sleep, HIDDEN_MS);
    else leaveSleep();
  });
  addEventListener("online", reconnect);
  addEventListener("offline", () => {
    if (connection.value === "reconnecting") connection.value = "offline";
  });
  addEventListener("pagehide", sleep);
  addEventListener("pageshow", (event) => event.persisted && leaveSleep());
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
    checkSilence();
  }, 1000);
  void runForever();
}
