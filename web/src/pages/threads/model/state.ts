/** State of the page, stored in its URL, and the data loaded for it. */

import { batch, computed, effect, signal, untracked, type ReadonlySignal } from "@preact/signals";
import { MODES, type Mode } from "../../../timeline/sums";
import { NONE } from "../../../timeline/model";
import { threadAt } from "./log";
import { threadPath } from "../../../timeline/model";
import type { LoadedTrace } from "../../../timeline/load";
import { clampView, fullView, type View } from "../../../timeline/view";
import { asProblem, getBytes, type Problem, type Job } from "../../../lib/api";
import { formatCount } from "../../../lib/format";
import { createHashState } from "../../../lib/hash";
import { deleteJob, loadResult, submitJob, jobProblem, watchJob } from "../../../lib/jobs";
import { Ring } from "../../../lib/ring";
import { advanceClock, toggleClock } from "../../../timeline/clock";
import { readTrace } from "../../../timeline/reader";
import { nestParameters } from "../../../lib/parameters";
import { binAt, firstWithin, named, type Cell, type ThreadResult } from "./result";

export const TABS = ["tree", "log", "statistics"] as const;
export type TabName = (typeof TABS)[number];

export const state = createHashState({
  v: 1,
  set: [] as readonly string[],
  job: "",
  cell: 0,
  replica: -1,
  from: 0,
  to: 0,
  a: 0,
  b: 0,
  at: -1,
  pick: "",
  color: "depth",
  critical: false,
  steals: true,
  vs: "",
  job2: "",
  tab: "tree",
  tree: "icicle",
  root: "",
  speed: 10,
  log: "",
  follow: true,
});

export const draft = computed(() => nestParameters(state.set.value));
export const mode = computed<Mode>(() => MODES.find((each) => each === state.color.value) ?? "depth");
export const tab = computed<TabName>(() => TABS.find((each) => each === state.tab.value) ?? "tree");

// -- system messages --------------------------------------------------------------------------------------------------

export interface Said {
  time: number;
  text: string;
}

const said = new Ring<Said>(200);
export const messages = signal<readonly Said[]>([]);

/** Write a system message to the log. */
export function say(text: string): void {
  said.push({ time: Date.now(), text });
  messages.value = said.toArray();
}

export function forgetMessages(): void {
  said.clear();
  messages.value = [];
}

// -- a job and its result ---------------------------------------------------------------------------------------------

export interface Run {
  job: ReadonlySignal<Job | undefined>;
  result: ReadonlySignal<ThreadResult | undefined>;
  /** True while the result is partial. */
  partial: ReadonlySignal<boolean>;
  problem: ReadonlySignal<Problem | undefined>;
  /** True if the job was known before; if it is unknown now, it was deleted. */
  seen: ReadonlySignal<boolean>;
}

const PARTIAL_MS = 1500;

/** Follow the job whose ID is in a signal. */
function followed(id: ReadonlySignal<string>): Run {
  const job = signal<Job | undefined>(undefined);
  const latest = signal<ThreadResult | undefined>(undefined);
  const partial = signal(false);
  const problem = signal<Problem | undefined>(undefined);
  const seen = signal(false);
  let stop = () => {};
  effect(() => {
    const wanted = id.value;
    stop();
    batch(() => {
      [job.value, latest.value, partial.value, problem.value] = [undefined, undefined, false, undefined];
      seen.value = false;
    });
    if (wanted) stop = untracked(() => follow(wanted));
  });
  function follow(wanted: string): () => void {
    let [alive, timer, ended] = [true, 0, ""];
    const watched = watchJob(wanted);
    const ask = async (soFar: boolean) => {
      try {
        const answer = await loadResult<ThreadResult>(wanted, soFar);
        if (!alive) return;
        batch(() => ([latest.value, partial.value] = [answer.result, answer.partial === true]));
      } catch (error) {
        if (alive && !soFar) problem.value = asProblem(error);
      }
    };
    const poll = async () => {
      if (job.peek()?.state === "running" && Number(job.peek()?.done) > 0) await ask(true);
      if (alive && !ended) timer = setTimeout(poll, PARTIAL_MS) as unknown as number;
    };
    const leave = effect(() => {
      const now = watched.value;
      job.value = now;
      if (now) seen.value = true;
      if (!now || now.state === ended) return;
      if (!["done", "failed", "cancelled", "skipped"].includes(now.state)) {
        ended = "";
        return;
      }
      ended = now.state;
      say(`job ${wanted} is ${now.state}${now.error ? `: ${now.error}` : ""}`);
      if (now.state === "done") void ask(false);
      if (now.state === "cancelled") void ask(true);
    });
    timer = setTimeout(poll, PARTIAL_MS) as unknown as number;
    return () => {
      alive = false;
      clearTimeout(timer);
      leave();
    };
  }
  return { job, result: latest, partial, problem, seen };
}

/** Finished run included in the page, which first visitors see. */
export interface Example {
  result: ThreadResult;
  trace: unknown;
}

export const example = signal<Example | undefined>(undefined);

const id = computed(() => state.job.value);
const chosen = followed(id);
export const run: Run = {
  ...chosen,
  result: computed(() => (id.value ? chosen.result.value : example.value?.result)),
};
/** Reason why the job is unknown. */
export const unknown = computed(() => (id.value ? jobProblem(id.value).value : undefined));
/** ID of the compared job, which is often another cell of the same job. */
export const otherId = computed(() => state.job2.value);
export const otherRun = followed(otherId);
/** "ages" while the data can change; the results of ended runs do not become outdated. */
export const ages = computed(() => (run.partial.value || otherRun.partial.value ? "ages" : ""));

export const cell = computed<Cell | undefined>(() => {
  const cells = run.result.value?.cells ?? [];
  return cells.find((each) => each.cell === state.cell.value) ?? cells[0];
});

export const otherCell = computed<Cell | undefined>(() => {
  if (!state.vs.value || !cell.value) return undefined;
  const cells = (otherId.value ? otherRun : run).result.value?.cells ?? [];
  return cells.find((each) => each.scheduler === state.vs.value && each.cores === cell.value?.cores);
});

// -- traces -----------------------------------------------------------------------------------------------------------

/** Maximum number of events of a trace, which is the API's limit. */
const MOST_EVENTS = 250_000;

export interface TraceState {
  loaded: LoadedTrace | undefined;
  loading: boolean;
  problem: Problem | undefined;
}

const NOTHING: TraceState = { loaded: undefined, loading: false, problem: undefined };

/** Load the trace named by `wanted` (job, cell and replica) as long as it does not change. */
function traced(wanted: ReadonlySignal<string>): {
  value: ReadonlySignal<TraceState>;
  again: () => void;
  show: (source: Blob) => Promise<void>;
} {
  const value = signal<TraceState>(NOTHING);
  const tries = signal(0);
  let control = new AbortController();
  const put = async (source: Promise<ArrayBuffer> | Blob, signal: AbortSignal, name: string) => {
    value.value = { ...value.peek(), loading: true, problem: undefined };
    try {
      const opened = await readTrace(source instanceof Blob ? source : await source);
      if (signal.aborted) return;
      value.value = { loaded: opened, loading: false, problem: undefined };
      const { trace } = opened;
      say(
        `${name}: ${formatCount(trace.start.length, "slice")} of ` +
          `${formatCount(trace.threads.parent.length, "thread")} on ${formatCount(trace.cores, "core")}, ` +
          `${trace.scheduler}${trace.truncated ? ", cut at the maximum number of events" : ""}` +
          `${trace.deadlocked ? ", ends in a deadlock" : ""}`,
      );
    } catch (error) {
      if (!signal.aborted) value.value = { ...NOTHING, problem: asProblem(error) };
    }
  };
  const renew = () => {
    control.abort();
    control = new AbortController();
    return control.signal;
  };
  effect(() => {
    void tries.value;
    const signal = renew();
    const [job, cell, replica] = wanted.value.split(" ");
    if (!replica) {
      value.value = NOTHING;
      return;
    }
    untracked(
      () =>
        void put(
          getBytes(`/api/jobs/${job}/trace.json`, { replica, cell, max_events: MOST_EVENTS }, signal),
          signal,
          `replica ${replica}`,
        ),
    );
  });
  return { value, again: () => (tries.value += 1), show: (source) => put(source, renew(), "file") };
}

export const replica = computed(() => Math.max(0, state.replica.value));
const wanted = computed(() =>
  id.value && cell.value && !run.partial.value
    ? `${id.value} ${cell.value.cell} ${Math.min(replica.value, cell.value.replicas - 1)}`
    : id.value,
);
const otherWanted = computed(() =>
  id.value && otherCell.value && !otherRun.partial.value
    ? `${otherId.value || id.value} ${otherCell.value.cell} ${replica.value}`
    : "",
);

export const main = traced(wanted);
export const other = traced(otherWanted);
export const loaded = computed(() => main.value.value.loaded);
export const otherLoaded = computed(() => (state.vs.value ? other.value.value.loaded : undefined));

/** End of both pictures. */
export const until = computed(() => Math.max(loaded.value?.trace.until ?? 1, otherLoaded.value?.trace.until ?? 0));

export const view = computed<View>(() =>
  state.to.value > state.from.value
    ? clampView({ t0: state.from.value, t1: state.to.value }, until.value)
    : fullView(until.value),
);

export function see(next: View): void {
  const all = fullView(until.peek());
  const full = next.t1 - next.t0 >= (all.t1 - all.t0) * 0.9999;
  batch(() => ([state.from.value, state.to.value] = full ? [0, 0] : [round(next.t0), round(next.t1)]));
}

/** Round to ns, which are exact in a trace and sufficient in the URL. */
function round(us: number): number {
  return Number(us.toFixed(4));
}

/** The marked range, or the whole trace. */
export const range = computed<View | undefined>(() =>
  state.b.value > state.a.value ? { t0: state.a.value, t1: state.b.value } : undefined,
);

export function mark(next: View | undefined): void {
  batch(
    () =>
      ([state.a.value, state.b.value] = next
        ? [round(Math.max(0, next.t0)), round(Math.min(until.peek(), next.t1))]
        : [0, 0]),
  );
}

// -- the selected thread ----------------------------------------------------------------------------------------------

export const picked = computed(() =>
  loaded.value && state.pick.value ? threadAt(loaded.value.trace, loaded.value.tree, state.pick.value) : NONE,
);
/** The slice from which arrow keys move: the selected thread's first or another slice. */
export const slice = signal(NONE);

export function pick(thread: number, at = NONE): void {
  const trace = loaded.peek()?.trace;
  if (!trace) return;
  batch(() => {
    state.pick.value = thread === NONE ? "" : threadPath(trace.threads, thread);
    slice.value = thread === NONE ? NONE : at === NONE ? (trace.threads.slice[thread] as number) : at;
  });
}

/** Return a signal's value at a limited rate, for values that require a scan of all slices. */
function sampled<T>(source: ReadonlySignal<T>, ms: number): ReadonlySignal<T> {
  const paced = signal(source.peek());
  let timer = 0;
  let since = 0;
  const take = () => {
    [timer, since] = [0, performance.now()];
    paced.value = source.peek();
  };
  effect(() => {
    void source.value;
    timer ||= setTimeout(take, Math.max(0, ms - (performance.now() - since))) as unknown as number;
  });
  return paced;
}

/** Time under the pointer, in either picture. */
export const cursor = signal<number | undefined>(undefined);

// -- playback ---------------------------------------------------------------------------------------------------------

export const playing = signal(false);
/** Value of a playhead at the end. */
const END = -1;
/** Time in µs up to which the trace is shown: everything until it is played or moved. */
export const told = computed(() => (state.at.value < 0 || state.at.value > until.value ? until.value : state.at.value));
/** Undefined at the end, when everything is shown. */
export const playhead = computed(() => (told.value < until.value ? told.value : undefined));

export function seekTo(at: number): void {
  state.at.value = at < until.peek() ? at : END;
}

/** The marked range and the playhead at a reduced rate, for numbers and texts. */
export const calmRange = sampled(range, 150);
export const calmPlayhead = sampled(playhead, 150);

let last = 0;

function tick(now: number): void {
  // A frame may have started before the click that started the playback.
  if (!playing.peek()) return;
  const next = advanceClock(
    { time: told.peek(), isPlaying: true, speed: state.speed.peek() },
    until.peek(),
    Math.max(0, now - last),
  );
  last = now;
  batch(() => {
    seekTo(next.time);
    playing.value = next.isPlaying;
  });
  if (next.isPlaying) requestAnimationFrame(tick);
}

export function play(): void {
  if (!loaded.peek()) return;
  const next = toggleClock({ time: told.peek(), isPlaying: playing.peek(), speed: state.speed.peek() }, until.peek());
  batch(() => {
    seekTo(next.time);
    playing.value = next.isPlaying;
  });
  last = performance.now();
  if (next.isPlaying) requestAnimationFrame(tick);
}

/** Show the whole replica, and return a function that restores the view. */
export function reset(): () => void {
  const keep = (["from", "to", "a", "b", "at"] as const).map((name) => [state[name], state[name].peek()] as const);
  const text = (["pick", "root"] as const).map((name) => [state[name], state[name].peek()] as const);
  batch(() => {
    playing.value = false;
    for (const [each] of keep) each.value = 0;
    state.at.value = END;
    for (const [each] of text) each.value = "";
    slice.value = NONE;
  });
  state.commit();
  return () =>
    batch(() => {
      for (const [each, value] of keep) each.value = value;
      for (const [each, value] of text) each.value = value;
    });
}

/** True while the dialog for files is open. */
export const saving = signal(false);

// -- actions ----------------------------------------------------------------------------------------------------------

/** Show another job with a new view. */
export function open(job: string): void {
  reset();
  batch(() => {
    [state.job.value, state.job2.value, state.vs.value] = [job, "", ""];
    [state.cell.value, state.replica.value] = [0, -1];
  });
  state.commit();
}

/** Show a file instead of a job. */
export async function openFile(file: Blob): Promise<void> {
  example.value = undefined;
  open("");
  await main.show(file);
}

/** Show the included example from its start and play it. */
export async function showExample(fetched: Promise<Example>, still: boolean): Promise<void> {
  const brought = await fetched;
  if (id.peek() || main.value.peek().loaded || main.value.peek().loading) return;
  example.value = brought;
  await main.show(new Blob([JSON.stringify(brought.trace)]));
  if (!id.peek() && !still && state.at.peek() === END && !playing.peek()) play();
}

export async function start(parameters: Record<string, unknown>): Promise<void> {
  const job = await submitJob("thread", parameters);
  say(`job ${job} submitted`);
  open(job);
}

/** Show another cell of the job. */
export function showCell(next: number): void {
  reset();
  batch(() => {
    [state.cell.value, state.vs.value, state.job2.value] = [next, "", ""];
  });
  state.commit();
}

export function choose(next: number): void {
  const most = cell.peek()?.replicas ?? 1;
  reset();
  state.replica.value = Math.max(0, Math.min(most - 1, next));
  state.commit();
}

/** Compare the program under another policy: another cell of this job, or else a new job. */
export async function compare(scheduler: string): Promise<void> {
  const [mine, outcome] = [cell.peek(), run.result.peek()];
  if (!mine || !outcome) return;
  if (!scheduler) return void batch(() => ([state.vs.value, state.job2.value] = ["", ""]));
  if (outcome.cells.some((each) => each.scheduler === scheduler && each.cores === mine.cores)) {
    batch(() => ([state.vs.value, state.job2.value] = [scheduler, ""]));
    return state.commit();
  }
  const { quantum_us: quantum, ...rest } = outcome.parameters;
  const job = await submitJob("thread", {
    ...rest,
    cores: mine.cores,
    scheduler,
    ...(scheduler === "round_robin" && quantum ? { quantum_us: quantum } : {}),
  });
  say(`job ${job} submitted: the same with ${scheduler}`);
  batch(() => ([state.vs.value, state.job2.value] = [scheduler, job]));
  state.commit();
}

/** Description of the search in progress; empty if there is none. */
export const searching = signal<string>("");
let search = 0;

/** Load the first replica whose makespan is in a range of bins. */
export async function chooseWithin(low: number, high: number): Promise<void> {
  const [mine, outcome] = [cell.peek(), run.result.peek()];
  if (!mine || !outcome) return;
  const known = named(mine, low, high);
  search += 1;
  const number = search;
  if (known !== undefined) return choose(known);
  const probe = async (count: number) => {
    if (count === mine.replicas) return mine.histograms.makespan_ns?.bins ?? [];
    searching.value = `looking at the first ${count} of ${mine.replicas} replicas`;
    return histogramOf({ ...outcome.parameters, cores: mine.cores, scheduler: mine.scheduler, replicas: count });
  };
  try {
    const first = await firstWithin(low, high, mine.replicas, probe);
    if (number === search && first !== undefined) choose(first);
  } finally {
    if (number === search) searching.value = "";
  }
}

async function histogramOf(parameters: Record<string, unknown>): Promise<[number, number][]> {
  const { quantum_us: quantum, ...rest } = parameters;
  const given = parameters.scheduler === "round_robin" && quantum ? { ...rest, quantum_us: quantum } : rest;
  const job = await submitJob("thread", given, { priority: "high" });
  const watched = watchJob(job);
  await new Promise<void>((done, refused) => {
    const leave = effect(() => {
      const now = watched.value?.state;
      if (now === "done")
        queueMicrotask(() => {
          leave();
          done();
        });
      if (now === "failed" || now === "cancelled" || now === "skipped")
        queueMicrotask(() => {
          leave();
          refused(new Error(`job ${job} is ${now}`));
        });
    });
  });
  const answer = await loadResult<ThreadResult>(job);
  void deleteJob(job).catch(() => undefined);
  return answer.result.cells[0]?.histograms.makespan_ns?.bins ?? [];
}

export function chooseQuantile(share: number): Promise<void> {
  const mine = cell.peek();
  const bin = mine && binAt(mine, share);
  return bin === undefined ? Promise.resolve() : chooseWithin(bin, bin);
}
