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
import { findOpeningCell, quantileBin, findFirstReplica, listedReplica, type Cell, type ThreadResult } from "./result";

export const TABS = ["tree", "log", "statistics"] as const;
export type TabName = (typeof TABS)[number];

export const state = createHashState({
  v: 1,
  set: [] as readonly string[],
  job: "",
  /** Number of the cell; -1 for the one with the highest speedup. */
  cell: -1,
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
export const colorMode = computed<Mode>(() => MODES.find((each) => each === state.color.value) ?? "depth");
export const tab = computed<TabName>(() => TABS.find((each) => each === state.tab.value) ?? "tree");

// -- system messages --------------------------------------------------------------------------------------------------

export interface SystemMessage {
  time: number;
  text: string;
}

const messageRing = new Ring<SystemMessage>(200);
export const messages = signal<readonly SystemMessage[]>([]);

/** Write a system message to the log. */
export function addMessage(text: string): void {
  messageRing.push({ time: Date.now(), text });
  messages.value = messageRing.toArray();
}

export function clearMessages(): void {
  messageRing.clear();
  messages.value = [];
}

// -- a job and its result ---------------------------------------------------------------------------------------------

export interface RunSignals {
  job: ReadonlySignal<Job | undefined>;
  result: ReadonlySignal<ThreadResult | undefined>;
  /** True while the result is partial. */
  isPartial: ReadonlySignal<boolean>;
  problem: ReadonlySignal<Problem | undefined>;
  /** True if the job was known before; if it is unknown now, it was deleted. */
  wasKnown: ReadonlySignal<boolean>;
}

const PARTIAL_MS = 1500;

/** Follow the job whose ID is in a signal. */
function followRun(id: ReadonlySignal<string>): RunSignals {
  const job = signal<Job | undefined>(undefined);
  const latest = signal<ThreadResult | undefined>(undefined);
  const partial = signal(false);
  const problem = signal<Problem | undefined>(undefined);
  const seen = signal(false);
  let stop = () => {};
  effect(() => {
    const runId = id.value;
    stop();
    batch(() => {
      [job.value, latest.value, partial.value, problem.value] = [undefined, undefined, false, undefined];
      seen.value = false;
    });
    if (runId) stop = untracked(() => follow(runId));
  });
  function follow(runId: string): () => void {
    let [isActive, timer, ended] = [true, 0, ""];
    const watched = watchJob(runId);
    const load = async (isPartialWanted: boolean) => {
      try {
        const answer = await loadResult<ThreadResult>(runId, isPartialWanted);
        if (!isActive) return;
        batch(() => ([latest.value, partial.value] = [answer.result, answer.partial === true]));
      } catch (error) {
        if (isActive && !isPartialWanted) problem.value = asProblem(error);
      }
    };
    const poll = async () => {
      if (job.peek()?.state === "running" && Number(job.peek()?.done) > 0) await load(true);
      if (isActive && !ended) timer = setTimeout(poll, PARTIAL_MS) as unknown as number;
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
      addMessage(`job ${runId} is ${now.state}${now.error ? `: ${now.error}` : ""}`);
      if (now.state === "done") void load(false);
      if (now.state === "cancelled") void load(true);
    });
    timer = setTimeout(poll, PARTIAL_MS) as unknown as number;
    return () => {
      isActive = false;
      clearTimeout(timer);
      leave();
    };
  }
  return { job, result: latest, isPartial: partial, problem, wasKnown: seen };
}

/** Finished run included in the page, which first visitors see. */
export interface Example {
  result: ThreadResult;
  trace: unknown;
}

export const example = signal<Example | undefined>(undefined);

const id = computed(() => state.job.value);
const openRun = followRun(id);
export const run: RunSignals = {
  ...openRun,
  result: computed(() => (id.value ? openRun.result.value : example.value?.result)),
};
/** Reason why the job is unknown. */
export const jobUnknown = computed(() => (id.value ? jobProblem(id.value).value : undefined));
/** ID of the compared job, which is often another cell of the same job. */
export const otherId = computed(() => state.job2.value);
export const otherRun = followRun(otherId);
/** "ages" while the data can change; the results of ended runs do not become outdated. */
export const agesClass = computed(() => (run.isPartial.value || otherRun.isPartial.value ? "ages" : ""));

export const cell = computed<Cell | undefined>(() => {
  const cells = run.result.value?.cells ?? [];
  return cells.find((each) => each.cell === state.cell.value) ?? findOpeningCell(cells);
});

export const otherCell = computed<Cell | undefined>(() => {
  if (!state.vs.value || !cell.value) return undefined;
  const cells = (otherId.value ? otherRun : run).result.value?.cells ?? [];
  return cells.find((each) => each.scheduler === state.vs.value && each.cores === cell.value?.cores);
});

// -- traces -----------------------------------------------------------------------------------------------------------

/** Maximum number of events of a trace, which is the API's limit. */
const MAX_EVENTS = 250_000;

export interface TraceState {
  loaded: LoadedTrace | undefined;
  isLoading: boolean;
  problem: Problem | undefined;
}

const NO_TRACE: TraceState = { loaded: undefined, isLoading: false, problem: undefined };

/** Load the trace named by `name` (job, cell and replica) as long as it does not change. */
function loadTraces(name: ReadonlySignal<string>): {
  value: ReadonlySignal<TraceState>;
  reload: () => void;
  show: (source: Blob) => Promise<void>;
} {
  const value = signal<TraceState>(NO_TRACE);
  const tries = signal(0);
  let control = new AbortController();
  const put = async (source: Promise<ArrayBuffer> | Blob, signal: AbortSignal, name: string) => {
    value.value = { ...value.peek(), isLoading: true, problem: undefined };
    try {
      const opened = await readTrace(source instanceof Blob ? source : await source);
      if (signal.aborted) return;
      value.value = { loaded: opened, isLoading: false, problem: undefined };
      const { trace } = opened;
      addMessage(
        `${name}: ${formatCount(trace.start.length, "slice")} of ` +
          `${formatCount(trace.threads.parent.length, "thread")} on ${formatCount(trace.cores, "core")}, ` +
          `${trace.scheduler}${trace.truncated ? ", cut at the maximum number of events" : ""}` +
          `${trace.deadlocked ? ", ends in a deadlock" : ""}`,
      );
    } catch (error) {
      if (!signal.aborted) value.value = { ...NO_TRACE, problem: asProblem(error) };
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
    const [job, cell, replica] = name.value.split(" ");
    if (!replica) {
      value.value = NO_TRACE;
      return;
    }
    untracked(
      () =>
        void put(
          getBytes(`/api/jobs/${job}/trace.json`, { replica, cell, max_events: MAX_EVENTS }, signal),
          signal,
          `replica ${replica}`,
        ),
    );
  });
  return { value, reload: () => (tries.value += 1), show: (source) => put(source, renew(), "file") };
}

export const replica = computed(() => Math.max(0, state.replica.value));
const traceName = computed(() =>
  id.value && cell.value && !run.isPartial.value
    ? `${id.value} ${cell.value.cell} ${Math.min(replica.value, cell.value.replicas - 1)}`
    : id.value,
);
const otherTraceName = computed(() =>
  id.value && otherCell.value && !otherRun.isPartial.value
    ? `${otherId.value || id.value} ${otherCell.value.cell} ${replica.value}`
    : "",
);

export const mainTrace = loadTraces(traceName);
export const otherTrace = loadTraces(otherTraceName);
export const loaded = computed(() => mainTrace.value.value.loaded);
export const otherLoaded = computed(() => (state.vs.value ? otherTrace.value.value.loaded : undefined));

/** End of both pictures. */
export const endTime = computed(() => Math.max(loaded.value?.trace.until ?? 1, otherLoaded.value?.trace.until ?? 0));

export const view = computed<View>(() =>
  state.to.value > state.from.value
    ? clampView({ t0: state.from.value, t1: state.to.value }, endTime.value)
    : fullView(endTime.value),
);

export function setView(next: View): void {
  const all = fullView(endTime.peek());
  const full = next.t1 - next.t0 >= (all.t1 - all.t0) * 0.9999;
  batch(() => ([state.from.value, state.to.value] = full ? [0, 0] : [round(next.t0), round(next.t1)]));
}

/** Round to ns, which are exact in a trace and sufficient in the URL. */
function round(us: number): number {
  return Number(us.toFixed(4));
}

/** The marked range, or the whole trace. */
export const markedRange = computed<View | undefined>(() =>
  state.b.value > state.a.value ? { t0: state.a.value, t1: state.b.value } : undefined,
);

export function markRange(next: View | undefined): void {
  batch(
    () =>
      ([state.a.value, state.b.value] = next
        ? [round(Math.max(0, next.t0)), round(Math.min(endTime.peek(), next.t1))]
        : [0, 0]),
  );
}

// -- the selected thread ----------------------------------------------------------------------------------------------

export const selectedThread = computed(() =>
  loaded.value && state.pick.value ? threadAt(loaded.value.trace, loaded.value.tree, state.pick.value) : NONE,
);
/** The slice from which arrow keys move: the selected thread's first or another slice. */
export const selectedSlice = signal(NONE);

export function selectThread(thread: number, at = NONE): void {
  const trace = loaded.peek()?.trace;
  if (!trace) return;
  batch(() => {
    state.pick.value = thread === NONE ? "" : threadPath(trace.threads, thread);
    selectedSlice.value = thread === NONE ? NONE : at === NONE ? (trace.threads.slice[thread] as number) : at;
  });
}

/** Return a signal's value at a limited rate, for values that require a scan of all slices. */
function limitRate<T>(source: ReadonlySignal<T>, ms: number): ReadonlySignal<T> {
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
export const cursorTime = signal<number | undefined>(undefined);

// -- playback ---------------------------------------------------------------------------------------------------------

export const isPlaying = signal(false);
/** Value of a playhead at the end. */
const END_POSITION = -1;
/** Time in µs up to which the trace is shown: everything until it is played or moved. */
export const shownUntil = computed(() =>
  state.at.value < 0 || state.at.value > endTime.value ? endTime.value : state.at.value,
);
/** Undefined at the end, when everything is shown. */
export const playhead = computed(() => (shownUntil.value < endTime.value ? shownUntil.value : undefined));

export function seekTo(at: number): void {
  state.at.value = at < endTime.peek() ? at : END_POSITION;
}

/** The marked range and the playhead at a reduced rate, for numbers and texts. */
export const slowRange = limitRate(markedRange, 150);
export const slowPlayhead = limitRate(playhead, 150);

let lastTick = 0;

function tick(now: number): void {
  // A frame may have started before the click that started the playback.
  if (!isPlaying.peek()) return;
  const next = advanceClock(
    { time: shownUntil.peek(), isPlaying: true, speed: state.speed.peek() },
    endTime.peek(),
    Math.max(0, now - lastTick),
  );
  lastTick = now;
  batch(() => {
    seekTo(next.time);
    isPlaying.value = next.isPlaying;
  });
  if (next.isPlaying) requestAnimationFrame(tick);
}

export function togglePlay(): void {
  if (!loaded.peek()) return;
  const next = toggleClock(
    { time: shownUntil.peek(), isPlaying: isPlaying.peek(), speed: state.speed.peek() },
    endTime.peek(),
  );
  batch(() => {
    seekTo(next.time);
    isPlaying.value = next.isPlaying;
  });
  lastTick = performance.now();
  if (next.isPlaying) requestAnimationFrame(tick);
}

/** Show the whole replica, and return a function that restores the view. */
export function resetView(): () => void {
  const keep = (["from", "to", "a", "b", "at"] as const).map((name) => [state[name], state[name].peek()] as const);
  const text = (["pick", "root"] as const).map((name) => [state[name], state[name].peek()] as const);
  batch(() => {
    isPlaying.value = false;
    for (const [each] of keep) each.value = 0;
    state.at.value = END_POSITION;
    for (const [each] of text) each.value = "";
    selectedSlice.value = NONE;
  });
  state.commit();
  return () =>
    batch(() => {
      for (const [each, value] of keep) each.value = value;
      for (const [each, value] of text) each.value = value;
    });
}

/** True while the dialog for files is open. */
export const isSaveDialogOpen = signal(false);

// -- actions ----------------------------------------------------------------------------------------------------------

/** Show another job with a new view. */
export function openJob(job: string): void {
  resetView();
  batch(() => {
    [state.job.value, state.job2.value, state.vs.value] = [job, "", ""];
    [state.cell.value, state.replica.value] = [-1, -1];
  });
  state.commit();
}

/** Show a file instead of a job. */
export async function openFile(file: Blob): Promise<void> {
  example.value = undefined;
  openJob("");
  await mainTrace.show(file);
}

/** Show the included example from its start and play it. */
export async function showExample(fetched: Promise<Example>, still: boolean): Promise<void> {
  const brought = await fetched;
  if (id.peek() || mainTrace.value.peek().loaded || mainTrace.value.peek().isLoading) return;
  example.value = brought;
  await mainTrace.show(new Blob([JSON.stringify(brought.trace)]));
  if (!id.peek() && !still && state.at.peek() === END_POSITION && !isPlaying.peek()) togglePlay();
}

export async function startJob(parameters: Record<string, unknown>): Promise<void> {
  const job = await submitJob("thread", parameters);
  addMessage(`job ${job} submitted`);
  openJob(job);
}

/** Show another cell of the job. */
export function showCell(next: number): void {
  resetView();
  batch(() => {
    [state.cell.value, state.vs.value, state.job2.value] = [next, "", ""];
  });
  state.commit();
}

export function showReplica(next: number): void {
  const max = cell.peek()?.replicas ?? 1;
  resetView();
  state.replica.value = Math.max(0, Math.min(max - 1, next));
  state.commit();
}

/** Compare the program under another policy: another cell of this job, or else a new job. */
export async function comparePolicy(scheduler: string): Promise<void> {
  const [currentCell, outcome] = [cell.peek(), run.result.peek()];
  if (!currentCell || !outcome) return;
  if (!scheduler) return void batch(() => ([state.vs.value, state.job2.value] = ["", ""]));
  if (outcome.cells.some((each) => each.scheduler === scheduler && each.cores === currentCell.cores)) {
    batch(() => ([state.vs.value, state.job2.value] = [scheduler, ""]));
    return state.commit();
  }
  const { quantum_us: quantum, ...rest } = outcome.parameters;
  const job = await submitJob("thread", {
    ...rest,
    cores: currentCell.cores,
    scheduler,
    ...(scheduler === "round_robin" && quantum ? { quantum_us: quantum } : {}),
  });
  addMessage(`job ${job} submitted: the same with ${scheduler}`);
  batch(() => ([state.vs.value, state.job2.value] = [scheduler, job]));
  state.commit();
}

/** Description of the search in progress; empty if there is none. */
export const searchText = signal<string>("");
let searchNumber = 0;

/** Load the first replica whose makespan is in a range of bins. */
export async function showReplicaWithin(low: number, high: number): Promise<void> {
  const [currentCell, outcome] = [cell.peek(), run.result.peek()];
  if (!currentCell || !outcome) return;
  const known = listedReplica(currentCell, low, high);
  searchNumber += 1;
  const number = searchNumber;
  if (known !== undefined) return showReplica(known);
  const probe = async (count: number) => {
    if (count === currentCell.replicas) return currentCell.histograms.makespan_ns?.bins ?? [];
    searchText.value = `looking at the first ${count} of ${currentCell.replicas} replicas`;
    return loadHistogram({
      ...outcome.parameters,
      cores: currentCell.cores,
      scheduler: currentCell.scheduler,
      replicas: count,
    });
  };
  try {
    const first = await findFirstReplica(low, high, currentCell.replicas, probe);
    if (number === searchNumber && first !== undefined) showReplica(first);
  } finally {
    if (number === searchNumber) searchText.value = "";
  }
}

async function loadHistogram(parameters: Record<string, unknown>): Promise<[number, number][]> {
  const { quantum_us: quantum, ...rest } = parameters;
  const jobParameters = parameters.scheduler === "round_robin" && quantum ? { ...rest, quantum_us: quantum } : rest;
  const job = await submitJob("thread", jobParameters, { priority: "high" });
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

export function showQuantile(share: number): Promise<void> {
  const currentCell = cell.peek();
  const bin = currentCell && quantileBin(currentCell, share);
  return bin === undefined ? Promise.resolve() : showReplicaWithin(bin, bin);
}
