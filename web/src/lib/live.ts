/** State of the cluster as signals, updated by one event stream per tab. Call `start()` once. */

import { batch, computed, signal, type Signal } from "@preact/signals";
import { isListed } from "../kinds";
import { ageOf, OLD_MS, type Connection } from "./age";
import {
  ask as askOnce,
  authorization,
  get,
  needsToken,
  onDoubt,
  Problem,
  problemOf,
  signedIn,
  unreadable,
  type Alert,
  type Gpu,
  type Job,
  type Jobs,
  type Snapshot,
  type Status,
  type Worker,
} from "./api";
import {
  adopted,
  apply,
  clockAhead,
  beingComputed,
  empty,
  ended,
  MOST_JOBS,
  past,
  surplus,
  take,
  type Change,
  type HeardQueue,
  type LiveEvent,
} from "./fleet";
import { inPlace } from "./places";
import { Ring } from "./ring";
import { Parser, type Frame } from "./sse";

export interface Fleet {
  status: Status | undefined;
  queues: readonly HeardQueue[];
  workers: readonly Worker[];
  gpus: readonly Gpu[];
  alerts: readonly Alert[];
  /** Jobs by ID, each with its own signal, so that a changed job redraws only itself. */
  jobs: ReadonlyMap<string, Signal<Job>>;
}

export const connection = signal<Connection>("connecting");
/** Reason why the connection is not live. */
export const reason = signal("");
/** Time of the next attempt in ms since 1970, while reconnecting. */
export const retryAt = signal(0);
/** Time of the last message from the cluster in ms since 1970. */
export const heard = signal(0);
/** Current time in ms since 1970, updated every second while the page is visible, for ages and countdowns. */
export const now = signal(Date.now());
/** Age of the displayed data. Pictures are gray unless it is live; the time after `heard` is unknown otherwise. */
export const age = computed(() => ageOf(connection.value, heard.value, now.value));
/** Time up to which the displayed data is known in ms since 1970. */
export const seenAt = computed(() => (age.value === "live" ? now.value : heard.value));
export const snapshot = signal<Fleet>({
  status: undefined,
  queues: [],
  workers: [],
  gpus: [],
  alerts: [],
  jobs: new Map(),
});
/** False until the first snapshot has arrived. */
export const known = signal(false);
/** Jobs that were displayed and no longer exist, with the API's reason. */
export const gone = signal<ReadonlyMap<string, Problem>>(new Map());
/** Recent events, oldest first. */
export const events = signal<readonly LiveEvent[]>([]);

const TOPICS = "jobs,workers,workflows,fleet,queues,alerts";
const DEAD_MS = 40_000;
/** Minimum interval in milliseconds between updates of the signals. */
const FLUSH_MS = 250;
/** Delay in milliseconds before requesting counts by state and waiting reasons, which events do not contain. */
const COUNT_SOON_MS = 400;
const COUNT_MS = 2000;
/** Time in milliseconds after which a hidden page closes its connection: browsers allow six per host. */
const HIDDEN_MS = 60_000;
/** Time in milliseconds that a stream stays open when other tabs use all permitted streams. */
const TURN_MS = 1000;
const BETWEEN_MS = 3000;
const BY_TURNS = "following the cluster every few seconds: other tabs of this browser have its connections";
/** Silence in milliseconds after which a running job is requested, because it may have returned to its queue. */
const QUIET_MS = 3000;
/** Maximum number of jobs that are requested individually rather than as a list. */
const ASK_EACH = 4;

const model = empty();
const log = new Ring<LiveEvent>(500);
const jobs = new Map<string, Signal<Job>>();
const watched = new Set<string>();
const touched = new Set<string>();
const asked = new Set<string>();
/** Time of the last message about each running job, or of its last request, in ms since 1970. */
const lastWord = new Map<string, number>();
let room = MOST_JOBS;
let fleetTouched = false;
let logTouched = false;
let flushTimer = 0;
let askTimer = 0;
let current: AbortController | undefined;
let attempt = 0;
let wake: (() => void) | undefined;
let started = false;

// -- from the model to the signals ----------------------------------------------------------------------------------

function flushSoon(): void {
  flushTimer ||= window.setTimeout(flush, FLUSH_MS);
}

function flush(): void {
  flushTimer = 0;
  batch(() => {
    let changed = fleetTouched;
    for (const id of touched) changed = publish(id) || changed;
    for (const id of surplus(model, (each) => watched.has(each), room)) {
      model.jobs.delete(id);
      changed = jobs.delete(id) || changed;
    }
    if (changed) {
      const { status, queues, workers, gpus, alerts } = model;
      snapshot.value = { status, queues, workers, gpus, alerts, jobs: new Map(jobs) };
    }
    if (logTouched) events.value = log.toArray();
  });
  touched.clear();
  fleetTouched = logTouched = false;
}

/** Copy a job to its signal. Returns true if the signal is new. */
function publish(id: string): boolean {
  const job = model.jobs.get(id);
  lastWord.set(id, Date.now());
  if (!job) return jobs.delete(id);
  const there = jobs.get(id);
  if (there) there.value = job;
  else jobs.set(id, signal(job));
  return !there;
}

// -- requests for data that events do not contain -------------------------------------------------------------------

function ask(id: string): void {
  asked.add(id);
  askTimer ||= window.setTimeout(() => void askNow(), 300);
}

async function askNow(): Promise<void> {
  const wanted = [...asked];
  asked.clear();
  try {
    const answered =
      wanted.length <= ASK_EACH ? await each(wanted) : (await get<Jobs>("/api/jobs", { limit: 200 })).jobs;
    for (const job of answered) if (isListed(job.type) || watched.has(job.job_id)) adopt(job);
  } catch {
    // The stream detects the same failure, and its next snapshot contains the missing data.
  }
  askTimer = asked.size ? window.setTimeout(() => void askNow(), 1000) : 0;
}

async function each(ids: string[]): Promise<Job[]> {
  const answers = await Promise.allSettled(ids.map((id) => get<Job>(`/api/jobs/${id}`)));
  for (const [place, one] of answers.entries()) {
    if (one.status === "rejected" && one.reason instanceof Problem && one.reason.status === 404)
      lose(ids[place] as string, one.reason);
  }
  return answers.filter((one) => one.status === "fulfilled").map((one) => one.value);
}

/** Forget a job that no longer exists. */
export function lose(id: string, why: Problem): void {
  forget(id, why);
  flush();
}

function forget(id: string, why: Problem): void {
  // Keep an earlier reason such as a deletion, which is more specific.
  if (!gone.peek().has(id)) gone.value = new Map(gone.peek()).set(id, why);
  model.jobs.delete(id);
  watched.delete(id);
  touched.add(id);
}

let countTimer = 0;
let countedAt = 0;

function countSoon(): void {
  const wait = Math.max(COUNT_SOON_MS, countedAt + COUNT_MS - Date.now());
  countTimer ||= window.setTimeout(() => void countNow(), wait);
}

async function countNow(): Promise<void> {
  countedAt = Date.now();
  try {
    model.status = await get<Status>("/api/status");
    fleetTouched = true;
    const alone = !model.status.workers.live;
    const waiting = [...model.jobs.values()].filter(
      (job) => job.state === "queued" || job.waiting_because || (alone && job.state === "running"),
    );
    for (const job of waiting.slice(0, 100)) asked.add(job.job_id);
    if (asked.size) await askNow();
    flushSoon();
  } catch {
    // The stream detects and reports the same failure.
  }
  countTimer = 0;
}

/** Milliseconds by which the cluster's clock is ahead of this machine's, from snapshots and running jobs. */
let ahead = 0;

/** Convert a time of this machine's clock to cluster time, both in ms since 1970. */
export function clusterTime(at: number): number {
  return at + ahead;
}

/** Update the clock difference from a new job record. */
function readClock(job: Job): void {
  ahead = clockAhead(job, Date.now()) ?? ahead;
}

/** Store a job record from the API. */
export function adopt(job: Job): void {
  readClock(job);
  const kept = adopted(job, model.jobs.get(job.job_id), model.status?.workers.live);
  if (kept.rate === null) model.paces.delete(job.job_id);
  model.jobs.set(job.job_id, kept);
  touched.add(job.job_id);
  flushSoon();
}

/** Increase the number of stored jobs by `count`, after a request for older jobs. */
export function makeRoom(count: number): void {
  room = Math.max(room, jobs.size + count);
}

/** Keep a job in `snapshot.jobs` regardless of its age, and request it if it is unknown. Rejects with a Problem. */
export async function keep(id: string): Promise<void> {
  watched.add(id);
  if (!model.jobs.has(id)) adopt(await get<Job>(`/api/jobs/${id}`));
}

/** Request a known ended job again: it may have expired, which no event announces. */
export function askAgain(id: string): void {
  const job = model.jobs.get(id);
  if (job && (ended(job) || job.state === "blocked")) ask(id);
}

/** Create recent events from the timestamps of the newest jobs. */
function remember(newest: readonly Job[]): void {
  const recent = newest.flatMap(past).sort((left, right) => left.time - right.time);
  for (const event of recent.slice(-100)) log.push(event);
  logTouched = true;
}

/** Request the snapshot again, for example after an action on this page. */
export async function refresh(): Promise<void> {
  const fresh = await askOnce<Snapshot>("/api/snapshot");
  // The Date header is unsuitable: it is a coordinator's own clock.
  ahead = fresh.time * 1000 - Date.now();
  take(model, fresh);
  for (const job of fresh.jobs) {
    readClock(job);
    touched.add(job.job_id);
  }
  // Watched jobs outside the snapshot may have changed since the last one.
  for (const id of watched) if (model.jobs.has(id) && !touched.has(id)) ask(id);
  fleetTouched = true;
  if (!known.peek()) remember(fresh.jobs);
  batch(() => {
    heard.value = Date.now();
    known.value = true;
    flush();
  });
}

// -- the stream -----------------------------------------------------------------------------------------------------

function receive(frame: Frame): Change {
  const change = apply(model, frame);
  if (change.event) {
    if (change.event.type !== "progress") log.push(change.event);
    logTouched = logTouched || change.event.type !== "progress";
  }
  if (change.job) touched.add(change.job);
  if (change.deleted) forget(change.deleted, new Problem(404, "Deleted", `job ${change.deleted} was deleted`));
  if (change.ask) ask(change.ask);
  if (change.rows) fleetTouched = true;
  if (change.waits || (change.event && change.event.type !== "progress")) countSoon();
  flushSoon();
  return change;
}

function framesOf(parser: Parser, piece: string): Frame[] {
  try {
    return parser.push(piece);
  } catch {
    throw unreadable("/api/events");
  }
}

function understood(frame: Frame): Change {
  try {
    return receive(frame);
  } catch {
    throw unreadable("/api/events");
  }
}

/** Read one connection until its end, or for a number of milliseconds. */
async function follow(control: AbortController, most?: number): Promise<void> {
  const since = model.at;
  const answer = await fetch(`/api/events?topics=${TOPICS}`, {
    headers: { ...authorization(), Accept: "text/event-stream", ...(since ? { "Last-Event-ID": since } : {}) },
    cache: "no-store",
    signal: control.signal,
  });
  if (!answer.ok || !answer.body) throw await problemOf(answer);
  if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) throw unreadable("/api/events");
  const opened = Date.now();
  becomeLive();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  if (most) setTimeout(() => void reader.cancel().catch(() => undefined), most);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard.value = Date.now();
    if (connection.value !== "live") becomeLive();
    if (Date.now() - opened > 5000) attempt = 0;
    for (const frame of framesOf(parser, value)) {
      if (understood(frame).resync) await refresh();
    }
  }
}

/**
 * Follow the stream in one of the permitted slots until the connection ends. Without a free slot, follow it from time
 * to time; each connection first delivers the missed events.
 */
async function followed(control: AbortController): Promise<void> {
  while (!(await inPlace(() => follow(control)))) {
    await follow(control, TURN_MS);
    attempt = 0;
    reason.value = BY_TURNS;
    await rest(BETWEEN_MS, control.signal);
  }
}

function becomeLive(): void {
  batch(() => {
    connection.value = "live";
    reason.value = "";
    heard.value = Date.now();
  });
}

/** Return a delay of 1, 2, 4 ... 30 s with jitter, so that clients of a failed coordinator do not reconnect at once. */
export function backoff(failures: number, random = Math.random()): number {
  return Math.min(30_000, 1000 * 2 ** Math.min(failures, 5)) * (0.5 + random / 2);
}

function explain(error: unknown): string {
  if (error instanceof Problem) return error.status ? `${error.status}: ${error.detail}` : error.detail;
  return "the connection was lost";
}

async function pause(): Promise<void> {
  const wait = backoff(attempt);
  attempt += 1;
  retryAt.value = Date.now() + wait;
  await rest(wait);
}

/** Wait for a time, until woken up, or until aborted. */
async function rest(ms: number, control?: AbortSignal): Promise<void> {
  await new Promise<void>((done) => {
    setTimeout(done, ms);
    control?.addEventListener("abort", () => done());
    wake = done;
  });
  wake = undefined;
}

/** Wait until the page is visible again. */
function seen(): Promise<void> {
  if (!asleep) return Promise.resolve();
  return new Promise((done) => {
    wake = done;
  });
}

let asleep = false;

async function run(): Promise<never> {
  for (;;) {
    await seen();
    const control = new AbortController();
    current = control;
    try {
      await refresh();
      await followed(control);
      throw new Problem(0, "Ended", "the cluster closed the connection");
    } catch (error) {
      control.abort(); // an unread stream would keep its connection, and browsers allow six per host
      if (asleep) continue;
      batch(() => {
        const denied = needsToken.value || (error instanceof Problem && error.status === 403);
        reason.value = denied ? (error as Error).message : explain(error);
        connection.value = denied ? "denied" : navigator.onLine ? "reconnecting" : "offline";
      });
    }
    if (needsToken.value) await signedIn();
    else await pause();
  }
}

let quietAt = 0;

/** Request the running jobs without recent messages. */
function askQuiet(): void {
  if (Date.now() - quietAt < QUIET_MS) return;
  quietAt = Date.now();
  const running = new Set(beingComputed(model));
  for (const id of lastWord.keys()) if (!running.has(id)) lastWord.delete(id);
  for (const id of running) {
    if (Date.now() - (lastWord.get(id) ?? 0) < QUIET_MS) continue;
    lastWord.set(id, Date.now());
    ask(id);
  }
}

/** Check every second whether the stream is silent. */
function watchOver(): void {
  const silent = Date.now() - heard.value;
  if (connection.value === "live" && silent > OLD_MS) {
    connection.value = "stale";
    reason.value = "the cluster sent nothing for 20 s";
  }
  if (connection.value === "stale" && silent > DEAD_MS) current?.abort();
  if (connection.value === "live") askQuiet();
}

let doubting = false;

/**
 * Check the cluster after a suspicious response, because a failed stream stays silent for seconds before it ends. Close
 * the stream if the snapshot fails too.
 */
async function doubt(why: Problem): Promise<void> {
  if (doubting || connection.peek() !== "live") return;
  doubting = true;
  await refresh().catch(() => current?.abort(why));
  doubting = false;
}

/** Reconnect immediately. */
export function retryNow(): void {
  attempt = 0;
  wake?.();
}

function sleep(): void {
  asleep = true;
  current?.abort();
}

function rouse(): void {
  now.value = Date.now();
  if (asleep) connection.value = "connecting";
  asleep = false;
  retryNow();
}

/** Start following the cluster; further calls have no effect. */
export function start(): void {
  if (started) return;
  started = true;
  onDoubt((why) => void doubt(why));
  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = window.setTimeout(sleep, HIDDEN_MS);
    else rouse();
  });
  addEventListener("online", retryNow);
  addEventListener("offline", () => {
    if (connection.value === "reconnecting") connection.value = "offline";
  });
  addEventListener("pagehide", sleep);
  addEventListener("pageshow", (event) => event.persisted && rouse());
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
    watchOver();
  }, 1000);
  void run();
}
