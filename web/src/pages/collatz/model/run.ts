/** Runs of jobs: started, followed, paused, cancelled; what they find, as it comes. */

import { batch, computed, effect, signal } from "@preact/signals";
import { fromBinary, fromResult } from "./layers";
import { nextWindow, type Knowledge, type Setting, type Strategy } from "./strategies";
import { aligned, type Range } from "./view";
import { bytes, Problem, type Job } from "../../../lib/api";
import { ended } from "../../../lib/fleet";
import { compact, integer, seconds } from "../../../lib/format";
import { result, steer, submit, watch, type Verb } from "../../../lib/jobs";
import { clusterTime } from "../../../lib/live";
import { failed } from "../../../ui/toast";
import { learn } from "./data";
import { isStar, log } from "./events";
import { runtime } from "./runtime";
import { asked, choose, limits, range, state, strategy } from "./state";

/** Columns of a job at most, each with its own histogram. */
const COLUMNS = 1024;
/** Windows of strategies are smaller. */
const WINDOW_COLUMNS = 256;
/** ms between two looks at what a running job has so far; each look waits longer, since they grow. */
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
  /** Numbers so far. */
  count: bigint;
  complete: boolean;
  mode: string;
  delay: Found[];
  path: Found[];
  histogram: [number, number][];
  /** The outcome of verification, in words. */
  statement: string;
}

export type Phase = "idle" | "running" | "paused" | "ended";

export const phase = signal<Phase>("idle");
/** Ids of the run's jobs, in order. */
export const jobs = signal<readonly string[]>([]);
export const results = signal<ReadonlyMap<string, JobResult>>(new Map());
/** Grows with every new run: loops of an older one end. */
let turn = 0;

const views = computed(() => jobs.value.map((id) => ({ id, job: watch(id).value })));
export const jobViews = computed(() => views.value.flatMap(({ job }) => (job ? [job] : [])));
export const active = computed(() => jobViews.value.filter((job) => !ended(job)));
/** The job that is shown: of several the last that is not done. */
export const current = computed<Job | undefined>(() => active.value.at(-1) ?? jobViews.value.at(-1));

/** How long the run has taken, in words; `at` is ms since 1970 of this machine's clock. */
export function runtimeText(at: number): string {
  const taken = runtime(jobViews.value, clusterTime(at));
  return seconds(active.value.length ? Math.floor(taken) : taken);
}

// -- what was found -------------------------------------------------------------------------------------------------

function running(all: readonly Found[]): Found[] {
  const kept: Found[] = [];
  const order = (left: Found, right: Found) =>
    left.n < right.n ? -1 : left.n > right.n ? 1 : left.value > right.value ? -1 : 1;
  for (const each of all.toSorted(order))
    if (!kept.length || each.value > (kept.at(-1) as Found).value) kept.push(each);
  return kept;
}

/** Records of all jobs of the run together: what exceeds everything smaller that the run has looked at. */
export const records = computed(() => {
  const all = [...results.value.values()];
  return { delay: running(all.flatMap((each) => each.delay)), path: running(all.flatMap((each) => each.path)) };
});

/** True when the run looked at every number from its first record on. */
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

/** Describes a job by its parameters. */
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
  const what = kind === "delay" ? `${integer(value)} steps` : `peak ${integer(value)}`;
  log("record", `${integer(n)}: ${what}, more than any smaller number looked at`, {
    star,
    ...(steps === undefined ? {} : { steps }),
  });
}

// -- following one job ----------------------------------------------------------------------------------------------

/** Resolves when the job's view changes, or after `most` ms. */
function changed(id: string, most: number): Promise<void> {
  return new Promise((done) => {
    const view = watch(id);
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

/** Looks at what a job has so far. */
async function peek(job: Job): Promise<void> {
  const { result: answer } = await result<Statistics | null>(job.job_id, true);
  if (!answer) return;
  keep(job.job_id, read(job, answer, false));
  const density = answer.columns ? fromResult(job.job_id, answer.columns) : undefined;
  if (density) learn(density);
}

async function finish(job: Job): Promise<void> {
  const { result: answer } = await result<Statistics>(job.job_id);
  if (about(job).mode === "trajectory") return choose((answer as unknown as { n: string }).n);
  const now = read(job, answer, true);
  if (answer.columns?.density) learn(fromBinary(job.job_id, await bytes(`/api/jobs/${job.job_id}/density.bin`)));
  keep(job.job_id, now);
  const most = now.delay.at(-1);
  const said = now.statement || (most ? `longest ${integer(most.value)} steps at ${integer(most.n)}` : "no record");
  log("job", `${job.job_id} is done: ${integer(now.count)} numbers; ${said}`);
}

/** Follows a job to its end; gives its last view. */
async function follow(id: string, mine: number): Promise<Job | undefined> {
  let [wait, looked, done] = [FIRST_LOOK_MS, Date.now(), 0];
  while (mine === turn) {
    const job = watch(id).peek();
    if (job && ended(job)) {
      if (job.state === "done") await finish(job);
      else log("job", `${id} is ${job.state}${job.error ? `: ${job.error}` : ""}`);
      return job;
    }
    const due = Date.now() - looked >= wait;
    if (job && due && Number(job.done) !== done && about(job).mode === "statistics") {
      await peek(job).catch(() => undefined); // the end may have come in between
      [looked, wait, done] = [Date.now(), Math.min(LAST_LOOK_MS, wait * 1.5), Number(job.done)];
    }
    await changed(id, 1000);
  }
  return undefined;
}

// -- starting -------------------------------------------------------------------------------------------------------

function parameters({ first, end }: Range, columns: number): object {
  const count = end - first;
  const few = count < BigInt(columns) ? Number(count) : columns;
  return { mode: "statistics", start_number: String(first), number_count: String(count), columns: few, density: true };
}

async function send(window: Range, columns: number, high = false): Promise<string> {
  const id = await submit("collatz", parameters(window, columns), high ? { priority: "high" } : {});
  log(
    "job",
    `${id} was submitted: ${integer(window.first)} to ${integer(window.end - 1n)}, ` +
      `${compact(window.end - window.first)} numbers`,
  );
  return id;
}

function begin(): number {
  turn += 1;
  batch(() => {
    jobs.value = [];
    results.value = new Map();
    phase.value = "running";
  });
  return turn;
}

function knowledge(taken: readonly Range[]): Knowledge {
  const all = [...results.peek().values()].flatMap((each) => each.delay);
  return { taken, best: all.sort((left, right) => Number(right.value - left.value)).map((each) => each.n) };
}

/** Starts a run as the form says. */
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
  for (const each of lanesDone) if (each.status === "rejected") failed("Start", each.reason);
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

/** Shows a job that was submitted somewhere: its range, and what it finds. */
export async function open(id: string): Promise<void> {
  const mine = begin();
  jobs.value = [id];
  try {
    for (let tries = 0; !watch(id).peek() && tries < 50; tries += 1) await changed(id, 200);
    const job = watch(id).peek();
    if (!job) throw new Problem(404, "No such job", `there is no job ${id}; the cluster page lists them`);
    if (job.type !== "collatz")
      throw new Problem(400, "Another kind", `job ${id} is of kind ${job.type}; the cluster page shows it`);
    const { range: own, mode } = about(job);
    if (mode !== "trajectory") {
      state.from.value = String(own.first);
      state.to.value = String(own.end - 1n);
    }
    if (job.state === "paused") phase.value = "paused";
    await follow(id, mine);
  } catch (error) {
    failed(`Job ${id}`, error);
  }
  if (mine === turn) endRun();
}

async function steerAll(verb: Verb): Promise<void> {
  for (const job of active.peek()) {
    try {
      await steer(job.job_id, verb);
    } catch (error) {
      if (!(error instanceof Problem && error.status === 409)) failed(`${verb} ${job.job_id}`, error);
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

/** Ends the run: no more windows, and what runs is cancelled. */
export async function cancel(): Promise<void> {
  turn += 1;
  const mine = turn;
  log("system", "cancel");
  await steerAll("cancel");
  for (const id of jobs.peek()) void follow(id, mine);
  endRun();
}

/** Space: starts, pauses, goes on. */
export function toggle(): void {
  if (phase.peek() === "running") void pause();
  else if (phase.peek() === "paused") void resume();
  else void start();
}

export interface Before {
  jobs: readonly string[];
  results: ReadonlyMap<string, JobResult>;
}

/** Forgets the run, not its jobs; gives what was known, for Undo. */
export function forget(): Before {
  const before = { jobs: jobs.peek(), results: results.peek() };
  turn += 1;
  batch(() => {
    jobs.value = [];
    results.value = new Map();
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

// -- windows that the picture asks for ------------------------------------------------------------------------------

/** Numbers of a window that is computed without being asked for. */
export const AUTO_MOST = 2 ** 30;
const refined = new Set<string>();
/** Windows that are being computed for the picture. */
export const refining = signal(0);

/** Has a window computed in finer columns; the same window is not asked for twice. */
export async function refine(seen: Range): Promise<void> {
  const window = aligned(seen, COLUMNS, limits);
  const key = `${window.first} ${window.end}`;
  if (refined.has(key)) return;
  refined.add(key);
  refining.value = refining.peek() + 1;
  try {
    const id = await send(window, COLUMNS, true);
    while (!ended(watch(id).peek() ?? { state: "queued" })) await changed(id, 2000);
    if (watch(id).peek()?.state === "done") learn(fromBinary(id, await bytes(`/api/jobs/${id}/density.bin`)));
    else refined.delete(key);
  } catch (error) {
    refined.delete(key);
    failed("This window", error);
  }
  refining.value = refining.peek() - 1;
}
