/** Runs of jobs: starting, following, pausing and cancelling them, and their intermediate results. */

import { batch, computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { fromBinary, fromResult } from "./layers";
import { nextWindow, type Knowledge, type Setting, type Strategy } from "./strategies";
import { aligned, type Range } from "./view";
import { getBytes, Problem, type Job } from "../../../lib/api";
import { messageOf } from "../../../lib/errors";
import { isEnded } from "../../../lib/fleet";
import { formatCompact, formatCount, formatInteger, formatSeconds } from "../../../lib/format";
import { loadResult, controlJob, submitJob, jobProblem, watchJob, type JobVerb } from "../../../lib/jobs";
import { clusterTime, keepJob, knownUntil } from "../../../lib/live";
import { showError } from "../../../ui/toast";
import { exactOf, isExact, learn, learnt } from "./data";
import { isStar, log } from "./events";
import { recordsOf, type PageRecords } from "./found";
import { runtime } from "./runtime";
import { asked, choose, limits, range, state, strategy } from "./state";

/** Maximum number of columns per job, each with its own histogram. */
const COLUMNS = 1024;
/** Number of columns for windows of strategies, which are smaller. */
const WINDOW_COLUMNS = 256;
/** Initial interval in milliseconds between reads of partial results; it grows with their size. */
const FIRST_LOOK_MS = 1000;
const LAST_LOOK_MS = 15_000;

export interface Found {
  n: bigint;
  value: bigint;
}

interface Statistics {
  count: number | string;
  delay: { mean: number; max: TextFound; histogram: [number, number | string][] };
  peak: { max: TextFound };
  records: { delay: TextFound[]; path: TextFound[] };
  columns?: Parameters<typeof fromResult>[1];
}

interface TextFound {
  n: number | string;
  value: number | string;
}

export interface JobResult {
  range: Range;
  /** Number of values so far. */
  count: bigint;
  complete: boolean;
  mode: string;
  delay: Found[];
  path: Found[];
  histogram: [number, number][];
  /** Outcome of the verification, in words. */
  statement: string;
}

/** opening: looking up the job in the URL. */
export type Phase = "idle" | "opening" | "running" | "paused" | "ended";

export const phase = signal<Phase>("idle");
/** Reason why the job in the URL is not shown, and advice. */
export const lost = signal("");
/** IDs of the run's jobs in order. */
export const jobs = signal<readonly string[]>([]);
export const results = signal<ReadonlyMap<string, JobResult>>(new Map());
/** Incremented with each run, so that loops of earlier runs stop. */
let turn = 0;

const views = computed(() => jobs.value.map((id) => ({ id, job: watchJob(id).value })));
export const jobViews = computed(() => views.value.flatMap(({ job }) => (job ? [job] : [])));
export const active = computed(() => jobViews.value.filter((job) => !isEnded(job)));
/** Number of ended jobs of the run. */
export const finished = computed(() => jobViews.value.length - active.value.length);
/** The displayed job: of several jobs, the last unfinished one. */
export const current = computed<Job | undefined>(() => active.value.at(-1) ?? jobViews.value.at(-1));

/** Return the duration of the run in words, up to the last contact with the cluster. */
export function runtimeText(): string {
  const taken = runtime(jobViews.value, clusterTime(knownUntil.value));
  return formatSeconds(active.value.length ? Math.floor(taken) : taken);
}

// -- results --------------------------------------------------------------------------------------------------------

function running(all: readonly Found[]): Found[] {
  const kept: Found[] = [];
  const order = (left: Found, right: Found) =>
    left.n < right.n ? -1 : left.n > right.n ? 1 : left.value > right.value ? -1 : 1;
  for (const each of all.toSorted(order))
    if (!kept.length || each.value > (kept.at(-1) as Found).value) kept.push(each);
  return kept;
}

let walked: { key: string; records: PageRecords } | undefined;

/** Records of the range computed by the page, once it knows every number. */
const pageRecords = computed<PageRecords>(() => {
  learnt.value;
  const { first, end } = range.value;
  const key = `${first} ${end}`;
  if (walked?.key !== key)
    walked = isExact(range.value) ? { key, records: recordsOf(exactOf(range.value), range.value) } : undefined;
  return walked?.records ?? { delay: [], path: [] };
});

/** Records of all jobs of the run, or else the page's records. */
export const records = computed(() => {
  const all = [...results.value.values()];
  if (!all.length) return pageRecords.value;
  return { delay: running(all.flatMap((each) => each.delay)), path: running(all.flatMap((each) => each.path)) };
});

/** True if the run covered every number from its first record on. */
export const contiguous = computed(() => {
  const all = [...results.value.values()]
    .map((each) => each.range)
    .sort((left, right) => (left.first < right.first ? -1 : 1));
  return all.every((each, place) => place === 0 || each.first <= (all[place - 1] as Range).end);
});

function parsed({ n, value }: TextFound): Found {
  return { n: BigInt(n), value: BigInt(value) };
}

function read(job: Job, answer: Statistics, complete: boolean): JobResult {
  const { range: own, mode } = about(job);
  return {
    range: own,
    complete,
    mode,
    count: BigInt(answer.count),
    statement: (answer as { statement?: string }).statement ?? "",
    delay: (answer.records?.delay ?? []).map(parsed),
    path: (answer.records?.path ?? []).map(parsed),
    histogram: (answer.delay?.histogram ?? []).map(([delay, times]) => [delay, Number(times)]),
  };
}

/** Return a job's range and mode from its parameters. */
export function about(job: Job): { range: Range; mode: string } {
  const given = job.parameters as {
    mode?: string;
    start_number?: number | string;
    number_count?: number | string;
    n?: number | string;
  };
  const first = BigInt(given.start_number ?? given.n ?? 1);
  return { range: { first, end: first + BigInt(given.number_count ?? 1) }, mode: given.mode ?? "statistics" };
}

function keep(id: string, now: JobResult): void {
  const before = results.peek().get(id);
  batch(() => {
    results.value = new Map(results.peek()).set(id, now);
  });
  for (const kind of ["delay", "path"] as const) {
    const known = new Set(before?.[kind].map((each) => each.n));
    for (const each of now[kind]) if (!known.has(each.n)) tell(kind, each);
  }
}

function tell(kind: "delay" | "path", { n, value }: Found): void {
  const steps = kind === "delay" ? Number(value) : undefined;
  const star = kind === "delay" ? isStar(n, Number(value)) : isStar(n, 0, value);
  const what = kind === "delay" ? formatCount(value, "step") : `peak ${formatInteger(value)}`;
  log("record", `${formatInteger(n)}: ${what}, more than any smaller number looked at`, {
    star,
    ...(steps === undefined ? {} : { steps }),
  });
}

// -- following one job ----------------------------------------------------------------------------------------------

/** Wait until the job changes or `most` ms have passed. */
function changed(view: ReadonlySignal<Job | undefined>, most: number): Promise<void> {
  return new Promise((done) => {
    const seen = view.peek();
    const stop = effect(() => {
      if (view.value !== seen) queueMicrotask(finish);
    });
    const timer = setTimeout(finish, most);
    function finish(): void {
      clearTimeout(timer);
      stop();
      done();
    }
  });
}

/** Read a job's partial result. */
async function peek(job: Job): Promise<void> {
  const { result: answer } = await loadResult<Statistics | null>(job.job_id, true);
  if (!answer) return;
  keep(job.job_id, read(job, answer, false));
  const density = answer.columns ? fromResult(job.job_id, answer.columns) : undefined;
  if (density) learn(density);
}

async function finish(job: Job): Promise<void> {
  const { result: answer } = await loadResult<Statistics>(job.job_id);
  if (about(job).mode === "trajectory") return choose((answer as unknown as { n: string }).n);
  const now = read(job, answer, true);
  if (answer.columns?.density) learn(fromBinary(job.job_id, await getBytes(`/api/jobs/${job.job_id}/density.bin`)));
  keep(job.job_id, now);
  const most = now.delay.at(-1);
  const said =
    now.statement || (most ? `longest ${formatCount(most.value, "step")} at ${formatInteger(most.n)}` : "no record");
  log("job", `${job.job_id} is done: ${formatCount(now.count, "number")}; ${said}`);
}

/** Follow a job until it ends and return its last state. */
async function follow(id: string, mine: number): Promise<Job | undefined> {
  let [wait, looked, done] = [FIRST_LOOK_MS, Date.now(), 0];
  const view = watchJob(id);
  while (mine === turn) {
    const job = view.peek();
    const gone = jobProblem(id).peek();
    if (gone) throw gone;
    if (job && isEnded(job)) {
      if (job.state === "done") await finish(job);
      else await stopped(job);
      return job;
    }
    const due = Date.now() - looked >= wait;
    if (job && due && Number(job.done) !== done && about(job).mode === "statistics") {
      await peek(job).catch(() => undefined); // the job may have ended in the meantime
      [looked, wait, done] = [Date.now(), Math.min(LAST_LOOK_MS, wait * 1.5), Number(job.done)];
    }
    await changed(view, 1000);
  }
  return undefined;
}

/** Read the partial result of a cancelled or failed job, as far as it is stored. */
async function stopped(job: Job): Promise<void> {
  if (about(job).mode === "statistics") await peek(job).catch(() => undefined);
  log("job", `${job.job_id} is ${job.state}${job.error ? `: ${job.error}` : ""}`);
}

// -- starting -------------------------------------------------------------------------------------------------------

function parameters({ first, end }: Range, columns: number): object {
  const count = end - first;
  const few = count < BigInt(columns) ? Number(count) : columns;
  return { mode: "statistics", start_number: String(first), number_count: String(count), columns: few, density: true };
}

async function send(window: Range, columns: number, high = false): Promise<string> {
  const id = await submitJob("collatz", parameters(window, columns), high ? { priority: "high" } : {});
  log(
    "job",
    `${id} was submitted: ${formatInteger(window.first)} to ${formatInteger(window.end - 1n)}, ` +
      `${formatCompact(window.end - window.first)} numbers`,
  );
  return id;
}

function begin(as: Phase = "running"): number {
  turn += 1;
  batch(() => {
    jobs.value = [];
    results.value = new Map();
    lost.value = "";
    phase.value = as;
  });
  return turn;
}

function knowledge(taken: readonly Range[]): Knowledge {
  const all = [...results.peek().values()].flatMap((each) => each.delay);
  return { taken, best: all.sort((left, right) => Number(right.value - left.value)).map((each) => each.n) };
}

/** Start a run with the form's values. */
export async function start(): Promise<void> {
  if (Object.keys(asked.peek().why).length) return;
  const runStrategy: Strategy = strategy.peek();
  const most = runStrategy === "sequential" ? 1 : Math.max(1, state.windows.peek());
  const lanes = runStrategy === "sequential" ? 1 : Math.max(1, Math.min(16, state.parallel.peek()));
  const setting: Setting = { range: range.peek(), size: Math.max(1, state.size.peek()), seed: state.seed.peek() };
  const mine = begin();
  state.job.value = "";
  log("system", `start, strategy ${runStrategy}`);
  const taken: Range[] = [];
  const columns = runStrategy === "sequential" ? COLUMNS : WINDOW_COLUMNS;
  const lane = async () => {
    while (mine === turn && taken.length < most) {
      await unpaused(mine);
      const window = mine === turn ? nextWindow(runStrategy, setting, knowledge(taken)) : undefined;
      if (!window) return;
      taken.push(window);
      const id = await send(window, columns);
      if (mine !== turn) return;
      adopt(id);
      const last = await follow(id, mine);
      if (last?.state === "cancelled" || last?.state === "failed") return;
    }
  };
  const lanesDone = await Promise.allSettled(Array.from({ length: lanes }, lane));
  if (mine !== turn) return;
  for (const each of lanesDone) if (each.status === "rejected") showError("Start", each.reason);
  endRun();
}

function adopt(id: string): void {
  jobs.value = [...jobs.peek(), id];
  state.job.value = id;
  state.commit();
}

function endRun(): void {
  phase.value = "ended";
}

function unpaused(mine: number): Promise<void> {
  return new Promise((done) => {
    const stop = effect(() => {
      if (phase.value !== "paused" || mine !== turn)
        queueMicrotask(() => {
          stop();
          done();
        });
    });
  });
}

/** Show a job that was submitted elsewhere, with its range and results. */
export async function open(id: string): Promise<void> {
  const mine = begin("opening");
  try {
    const job = await found(id);
    if (mine !== turn) return;
    const { range: own, mode } = about(job);
    batch(() => {
      jobs.value = [id];
      if (mode !== "trajectory") [state.from.value, state.to.value] = [String(own.first), String(own.end - 1n)];
      phase.value = isEnded(job) ? "ended" : job.state === "paused" ? "paused" : "running";
    });
    await follow(id, mine);
  } catch (error) {
    if (mine !== turn) return;
    lost.value = whyLost(id, error);
    if (!jobs.peek().length) phase.value = "idle";
    log("system", lost.peek());
  }
  if (mine === turn && phase.peek() !== "idle") endRun();
}

/** Return a job of this kind. Throws a Problem. */
async function found(id: string): Promise<Job> {
  await keepJob(id);
  const view = watchJob(id);
  while (!view.peek()) await changed(view, 1000);
  const job = view.peek() as Job;
  if (job.type !== "collatz")
    throw new Problem(400, "Another kind", `job ${id} is of kind ${job.type}; the Cluster page shows it`);
  return job;
}

function whyLost(id: string, error: unknown): string {
  if (error instanceof Problem && error.status === 404)
    return `There is no job ${id}: it was deleted, or the address is wrong.`;
  return `Job ${id} is not shown: ${messageOf(error)}.`;
}

async function steerAll(verb: JobVerb): Promise<void> {
  for (const job of active.peek()) {
    try {
      await controlJob(job.job_id, verb);
    } catch (error) {
      if (!(error instanceof Problem && error.status === 409)) showError(`${verb} ${job.job_id}`, error);
    }
  }
}

export async function pause(): Promise<void> {
  phase.value = "paused";
  log("system", "pause");
  await steerAll("pause");
}

export async function resume(): Promise<void> {
  await steerAll("resume");
  phase.value = "running";
  log("system", "resume");
}

/** Stop the run and cancel its running jobs. */
export async function cancel(): Promise<void> {
  turn += 1;
  const mine = turn;
  log("system", "cancel");
  await steerAll("cancel");
  for (const id of jobs.peek()) void follow(id, mine);
  endRun();
}

/** Start, pause or resume (Space). */
export function toggle(): void {
  if (phase.peek() === "running") void pause();
  else if (phase.peek() === "paused") void resume();
  else if (phase.peek() !== "opening") void start();
}

export interface Before {
  jobs: readonly string[];
  results: ReadonlyMap<string, JobResult>;
}

/** Forget the run but not its jobs, and return its state for Undo. */
export function forget(): Before {
  const before = { jobs: jobs.peek(), results: results.peek() };
  turn += 1;
  batch(() => {
    jobs.value = [];
    results.value = new Map();
    lost.value = "";
    phase.value = "idle";
    state.job.value = "";
  });
  return before;
}

export function recallRun(before: Before): void {
  batch(() => {
    jobs.value = before.jobs;
    results.value = before.results;
    phase.value = before.jobs.length ? "ended" : "idle";
    state.job.value = before.jobs.at(-1) ?? "";
  });
}

// -- counting the view ----------------------------------------------------------------------------------------------

/** Maximum number of values in a window counted for the picture. */
export const WINDOW_MOST = 10n ** 13n;
/** ID of the job that counts the visible numbers. */
export const counting = signal<string>("");

/** Submit a job that counts the visible numbers in columns as fine as the picture. */
export async function count(seen: Range): Promise<void> {
  if (counting.peek()) return;
  try {
    const id = await send(aligned(seen, COLUMNS, limits), COLUMNS, true);
    counting.value = id;
    const view = watchJob(id);
    while (!isEnded(view.peek() ?? { state: "queued" })) await changed(view, 2000);
    if (view.peek()?.state === "done") learn(fromBinary(id, await getBytes(`/api/jobs/${id}/density.bin`)));
  } catch (error) {
    showError("These numbers were not counted", error);
  }
  counting.value = "";
}
