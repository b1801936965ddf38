/** Runs of jobs: starting, following, pausing and cancelling them, and their intermediate results. */

import { batch, computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { parseBinary, parseResult } from "./layers";
import { nextWindow, type Knowledge, type StrategySetting, type Strategy } from "./strategies";
import { alignRange, type Range } from "./view";
import { getBytes, Problem, type Job } from "../../../lib/api";
import { messageOf } from "../../../lib/errors";
import { isEnded } from "../../../lib/fleet";
import { formatCompact, formatCount, formatInteger, formatSeconds } from "../../../lib/format";
import { loadResult, controlJob, submitJob, jobProblem, watchJob, type JobVerb } from "../../../lib/jobs";
import { clusterTime, keepJob, knownUntil } from "../../../lib/live";
import { showError } from "../../../ui/toast";
import { getExact, isExact, storeDensity, dataVersion } from "./data";
import { isStar, addLine } from "./events";
import { findRecords, type PageRecords } from "./page-records";
import { runSeconds } from "./runtime";
import { requestedRange, showTrajectory, showView, limits, range, state, strategy } from "./state";

/** Maximum number of columns per job, each with its own histogram. */
const JOB_COLUMNS = 1024;
/** Number of columns for windows of strategies, which are smaller. */
const WINDOW_COLUMNS = 256;
/** Initial interval in milliseconds between reads of partial results; it grows with their size. */
const MIN_READ_MS = 1000;
const MAX_READ_MS = 15_000;

export interface FoundRecord {
  n: bigint;
  value: bigint;
}

interface Statistics {
  count: number | string;
  delay: { mean: number; max: RecordText; histogram: [number, number | string][] };
  peak: { max: RecordText };
  records: { delay: RecordText[]; path: RecordText[] };
  columns?: Parameters<typeof parseResult>[1];
}

interface RecordText {
  n: number | string;
  value: number | string;
}

export interface JobResult {
  range: Range;
  /** Number of values so far. */
  count: bigint;
  isComplete: boolean;
  mode: string;
  delay: FoundRecord[];
  path: FoundRecord[];
  histogram: [number, number][];
  /** Outcome of the verification, in words. */
  statement: string;
}

/** opening: looking up the job in the URL. */
export type Phase = "idle" | "opening" | "running" | "paused" | "ended";

export const runPhase = signal<Phase>("idle");
/** Reason why the job in the URL is not shown, and advice. */
export const jobProblemText = signal("");
/** IDs of the run's jobs in order. */
export const runJobs = signal<readonly string[]>([]);
export const results = signal<ReadonlyMap<string, JobResult>>(new Map());
/** Incremented with each run, so that loops of earlier runs stop. */
let runNumber = 0;

const views = computed(() => runJobs.value.map((id) => ({ id, job: watchJob(id).value })));
export const jobViews = computed(() => views.value.flatMap(({ job }) => (job ? [job] : [])));
export const activeJobs = computed(() => jobViews.value.filter((job) => !isEnded(job)));
/** Number of ended jobs of the run. */
export const finishedCount = computed(() => jobViews.value.length - activeJobs.value.length);
/** The displayed job: of several jobs, the last unfinished one. */
export const currentJob = computed<Job | undefined>(() => activeJobs.value.at(-1) ?? jobViews.value.at(-1));

/** Return the duration of the run in words, up to the last contact with the cluster. */
export function formatRuntime(): string {
  const taken = runSeconds(jobViews.value, clusterTime(knownUntil.value));
  return formatSeconds(activeJobs.value.length ? Math.floor(taken) : taken);
}

// -- results --------------------------------------------------------------------------------------------------------

function selectRecords(all: readonly FoundRecord[]): FoundRecord[] {
  const kept: FoundRecord[] = [];
  const order = (left: FoundRecord, right: FoundRecord) =>
    left.n < right.n ? -1 : left.n > right.n ? 1 : left.value > right.value ? -1 : 1;
  for (const each of all.toSorted(order))
    if (!kept.length || each.value > (kept.at(-1) as FoundRecord).value) kept.push(each);
  return kept;
}

let cachedRecords: { key: string; records: PageRecords } | undefined;

/** Records of the range computed by the page, once it knows every number. */
const pageRecords = computed<PageRecords>(() => {
  dataVersion.value;
  const { first, end } = range.value;
  const key = `${first} ${end}`;
  if (cachedRecords?.key !== key)
    cachedRecords = isExact(range.value)
      ? { key, records: findRecords(getExact(range.value), range.value) }
      : undefined;
  return cachedRecords?.records ?? { delay: [], path: [] };
});

/** Records of all jobs of the run, or else the page's records. */
export const records = computed(() => {
  const all = [...results.value.values()];
  if (!all.length) return pageRecords.value;
  return {
    delay: selectRecords(all.flatMap((each) => each.delay)),
    path: selectRecords(all.flatMap((each) => each.path)),
  };
});

/** True if the run covered every number from its first record on. */
export const isContiguous = computed(() => {
  const all = [...results.value.values()]
    .map((each) => each.range)
    .sort((left, right) => (left.first < right.first ? -1 : 1));
  return all.every((each, index) => index === 0 || each.first <= (all[index - 1] as Range).end);
});

function parseRecord({ n, value }: RecordText): FoundRecord {
  return { n: BigInt(n), value: BigInt(value) };
}

function readStatistics(job: Job, statistics: Statistics, complete: boolean): JobResult {
  const { range: jobRange, mode } = jobParameters(job);
  return {
    range: jobRange,
    isComplete: complete,
    mode,
    count: BigInt(statistics.count),
    statement: (statistics as { statement?: string }).statement ?? "",
    delay: (statistics.records?.delay ?? []).map(parseRecord),
    path: (statistics.records?.path ?? []).map(parseRecord),
    histogram: (statistics.delay?.histogram ?? []).map(([delay, times]) => [delay, Number(times)]),
  };
}

/** Return a job's range and mode from its parameters. */
export function jobParameters(job: Job): { range: Range; mode: string } {
  const parameters = job.parameters as {
    mode?: string;
    start_number?: number | string;
    number_count?: number | string;
    n?: number | string;
  };
  const first = BigInt(parameters.start_number ?? parameters.n ?? 1);
  return { range: { first, end: first + BigInt(parameters.number_count ?? 1) }, mode: parameters.mode ?? "statistics" };
}

function storeResult(id: string, now: JobResult): void {
  const before = results.peek().get(id);
  batch(() => {
    results.value = new Map(results.peek()).set(id, now);
  });
  for (const kind of ["delay", "path"] as const) {
    const known = new Set(before?.[kind].map((each) => each.n));
    for (const each of now[kind]) if (!known.has(each.n)) logRecord(kind, each);
  }
}

function logRecord(kind: "delay" | "path", { n, value }: FoundRecord): void {
  const steps = kind === "delay" ? Number(value) : undefined;
  const star = kind === "delay" ? isStar(n, Number(value)) : isStar(n, 0, value);
  const text = kind === "delay" ? formatCount(value, "step") : `peak ${formatInteger(value)}`;
  addLine("record", `${formatInteger(n)}: ${text}, more than any smaller number looked at`, {
    star,
    ...(steps === undefined ? {} : { steps }),
  });
}

// -- following one job ----------------------------------------------------------------------------------------------

/** Wait until the job changes or `timeoutMs` have passed. */
function waitForChange(view: ReadonlySignal<Job | undefined>, timeoutMs: number): Promise<void> {
  return new Promise((done) => {
    const previous = view.peek();
    const stop = effect(() => {
      if (view.value !== previous) queueMicrotask(finish);
    });
    const timer = setTimeout(finish, timeoutMs);
    function finish(): void {
      clearTimeout(timer);
      stop();
      done();
    }
  });
}

/** Read a job's partial result. */
async function readPartial(job: Job): Promise<void> {
  const { result: answer } = await loadResult<Statistics | null>(job.job_id, true);
  if (!answer) return;
  storeResult(job.job_id, readStatistics(job, answer, false));
  const density = answer.columns ? parseResult(job.job_id, answer.columns) : undefined;
  if (density) storeDensity(density);
}

async function readFinal(job: Job): Promise<void> {
  const { result: answer } = await loadResult<Statistics>(job.job_id);
  if (jobParameters(job).mode === "trajectory") return showTrajectory((answer as unknown as { n: string }).n);
  const now = readStatistics(job, answer, true);
  if (answer.columns?.density)
    storeDensity(parseBinary(job.job_id, await getBytes(`/api/jobs/${job.job_id}/density.bin`)));
  storeResult(job.job_id, now);
  const max = now.delay.at(-1);
  const outcome =
    now.statement || (max ? `longest ${formatCount(max.value, "step")} at ${formatInteger(max.n)}` : "no record");
  addLine("job", `${job.job_id} is done: ${formatCount(now.count, "number")}; ${outcome}`);
}

/** Follow a job until it ends and return its last state. */
async function followJob(id: string, ownRun: number): Promise<Job | undefined> {
  let [wait, lastReadAt, done] = [MIN_READ_MS, Date.now(), 0];
  const view = watchJob(id);
  while (ownRun === runNumber) {
    const job = view.peek();
    const gone = jobProblem(id).peek();
    if (gone) throw gone;
    if (job && isEnded(job)) {
      if (job.state === "done") await readFinal(job);
      else await readStopped(job);
      return job;
    }
    const due = Date.now() - lastReadAt >= wait;
    if (job && due && Number(job.done) !== done && jobParameters(job).mode === "statistics") {
      await readPartial(job).catch(() => undefined); // the job may have ended in the meantime
      [lastReadAt, wait, done] = [Date.now(), Math.min(MAX_READ_MS, wait * 1.5), Number(job.done)];
    }
    await waitForChange(view, 1000);
  }
  return undefined;
}

/** Read the partial result of a cancelled or failed job, as far as it is stored. */
async function readStopped(job: Job): Promise<void> {
  if (jobParameters(job).mode === "statistics") await readPartial(job).catch(() => undefined);
  addLine("job", `${job.job_id} is ${job.state}${job.error ? `: ${job.error}` : ""}`);
}

// -- starting -------------------------------------------------------------------------------------------------------

function createParameters({ first, end }: Range, columns: number): object {
  const count = end - first;
  const few = count < BigInt(columns) ? Number(count) : columns;
  return { mode: "statistics", start_number: String(first), number_count: String(count), columns: few, density: true };
}

async function submitWindow(window: Range, columns: number, high = false): Promise<string> {
  const id = await submitJob("collatz", createParameters(window, columns), high ? { priority: "high" } : {});
  addLine(
    "job",
    `${id} was submitted: ${formatInteger(window.first)} to ${formatInteger(window.end - 1n)}, ` +
      `${formatCompact(window.end - window.first)} numbers`,
  );
  return id;
}

function beginRun(initialPhase: Phase = "running"): number {
  runNumber += 1;
  batch(() => {
    runJobs.value = [];
    results.value = new Map();
    jobProblemText.value = "";
    runPhase.value = initialPhase;
  });
  return runNumber;
}

function collectKnowledge(taken: readonly Range[]): Knowledge {
  const all = [...results.peek().values()].flatMap((each) => each.delay);
  return {
    takenWindows: taken,
    best: all.sort((left, right) => Number(right.value - left.value)).map((each) => each.n),
  };
}

/** Start a run with the form's values. */
export async function startRun(): Promise<void> {
  if (Object.keys(requestedRange.peek().errors).length) return;
  const runStrategy: Strategy = strategy.peek();
  const maxWindows = runStrategy === "sequential" ? 1 : Math.max(1, state.windows.peek());
  const lanes = runStrategy === "sequential" ? 1 : Math.max(1, Math.min(16, state.parallel.peek()));
  const setting: StrategySetting = {
    range: range.peek(),
    size: Math.max(1, state.size.peek()),
    seed: state.seed.peek(),
  };
  const ownRun = beginRun();
  state.job.value = "";
  addLine("system", `start, strategy ${runStrategy}`);
  const taken: Range[] = [];
  const columns = runStrategy === "sequential" ? JOB_COLUMNS : WINDOW_COLUMNS;
  const runLane = async () => {
    while (ownRun === runNumber && taken.length < maxWindows) {
      await waitWhilePaused(ownRun);
      const window = ownRun === runNumber ? nextWindow(runStrategy, setting, collectKnowledge(taken)) : undefined;
      if (!window) return;
      taken.push(window);
      const id = await submitWindow(window, columns);
      if (ownRun !== runNumber) return;
      addJob(id);
      const last = await followJob(id, ownRun);
      if (last?.state === "cancelled" || last?.state === "failed") return;
    }
  };
  const outcomes = await Promise.allSettled(Array.from({ length: lanes }, runLane));
  if (ownRun !== runNumber) return;
  for (const each of outcomes) if (each.status === "rejected") showError("Start", each.reason);
  endRun();
}

function addJob(id: string): void {
  runJobs.value = [...runJobs.peek(), id];
  state.job.value = id;
  state.commit();
}

function endRun(): void {
  runPhase.value = "ended";
}

function waitWhilePaused(ownRun: number): Promise<void> {
  return new Promise((done) => {
    const stop = effect(() => {
      if (runPhase.value !== "paused" || ownRun !== runNumber)
        queueMicrotask(() => {
          stop();
          done();
        });
    });
  });
}

/** Show a job that was submitted elsewhere, with its range and results. */
export async function openJob(id: string): Promise<void> {
  const ownRun = beginRun("opening");
  try {
    const job = await loadJob(id);
    if (ownRun !== runNumber) return;
    const { range: own, mode } = jobParameters(job);
    if (mode === "frontier") {
      [runPhase.value, state.job.value, state.frontier.value] = ["idle", "", id];
      return showView("frontier");
    }
    batch(() => {
      runJobs.value = [id];
      if (mode !== "trajectory") [state.from.value, state.to.value] = [String(own.first), String(own.end - 1n)];
      runPhase.value = isEnded(job) ? "ended" : job.state === "paused" ? "paused" : "running";
    });
    await followJob(id, ownRun);
  } catch (error) {
    if (ownRun !== runNumber) return;
    jobProblemText.value = explainProblem(id, error);
    if (!runJobs.peek().length) runPhase.value = "idle";
    addLine("system", jobProblemText.peek());
  }
  if (ownRun === runNumber && runPhase.peek() !== "idle") endRun();
}

/** Return a job of this kind. Throws a Problem. */
async function loadJob(id: string): Promise<Job> {
  await keepJob(id);
  const view = watchJob(id);
  while (!view.peek()) await waitForChange(view, 1000);
  const job = view.peek() as Job;
  if (job.type !== "collatz")
    throw new Problem(400, "Another kind", `job ${id} is of kind ${job.type}; the Cluster page shows it`);
  return job;
}

function explainProblem(id: string, error: unknown): string {
  if (error instanceof Problem && error.status === 404)
    return `There is no job ${id}: it was deleted, or the address is wrong.`;
  return `Job ${id} is not shown: ${messageOf(error)}.`;
}

async function controlAll(verb: JobVerb): Promise<void> {
  for (const job of activeJobs.peek()) {
    try {
      await controlJob(job.job_id, verb);
    } catch (error) {
      if (!(error instanceof Problem && error.status === 409)) showError(`${verb} ${job.job_id}`, error);
    }
  }
}

export async function pauseRun(): Promise<void> {
  runPhase.value = "paused";
  addLine("system", "pause");
  await controlAll("pause");
}

export async function resumeRun(): Promise<void> {
  await controlAll("resume");
  runPhase.value = "running";
  addLine("system", "resume");
}

/** Stop the run and cancel its running jobs. */
export async function cancelRun(): Promise<void> {
  runNumber += 1;
  const ownRun = runNumber;
  addLine("system", "cancel");
  await controlAll("cancel");
  for (const id of runJobs.peek()) void followJob(id, ownRun);
  endRun();
}

/** Start, pause or resume (Space). */
export function toggleRun(): void {
  if (runPhase.peek() === "running") void pauseRun();
  else if (runPhase.peek() === "paused") void resumeRun();
  else if (runPhase.peek() !== "opening") void startRun();
}

export interface RunState {
  jobs: readonly string[];
  results: ReadonlyMap<string, JobResult>;
}

/** Forget the run but not its jobs, and return its state for Undo. */
export function forgetRun(): RunState {
  const before = { jobs: runJobs.peek(), results: results.peek() };
  runNumber += 1;
  batch(() => {
    runJobs.value = [];
    results.value = new Map();
    jobProblemText.value = "";
    runPhase.value = "idle";
    state.job.value = "";
  });
  return before;
}

export function restoreRun(before: RunState): void {
  batch(() => {
    runJobs.value = before.jobs;
    results.value = before.results;
    runPhase.value = before.jobs.length ? "ended" : "idle";
    state.job.value = before.jobs.at(-1) ?? "";
  });
}

// -- counting the view ----------------------------------------------------------------------------------------------

/** Maximum number of values in a window counted for the picture. */
export const MAX_WINDOW = 10n ** 13n;
/** ID of the job that counts the visible numbers. */
export const countingJob = signal<string>("");

/** Submit a job that counts the visible numbers in columns as fine as the picture. */
export async function countVisible(seen: Range): Promise<void> {
  if (countingJob.peek()) return;
  try {
    const id = await submitWindow(alignRange(seen, JOB_COLUMNS, limits), JOB_COLUMNS, true);
    countingJob.value = id;
    const view = watchJob(id);
    while (!isEnded(view.peek() ?? { state: "queued" })) await waitForChange(view, 2000);
    if (view.peek()?.state === "done") storeDensity(parseBinary(id, await getBytes(`/api/jobs/${id}/density.bin`)));
  } catch (error) {
    showError("These numbers were not counted", error);
  }
  countingJob.value = "";
}
