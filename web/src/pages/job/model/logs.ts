/** Lines of the stored logs of all units, loaded in parts. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { asProblem, get, type LogExcerpts, type Problem, type Query, type UnitExcerpt } from "../../../lib/api";

export interface LogSearchState {
  units: readonly UnitExcerpt[];
  /** Number of units whose logs were read. */
  searched: number;
  /** Unit from which the search continues; null at the end. */
  next: number | null;
  isBusy: boolean;
  problem: Problem | undefined;
}

export interface LogQuery {
  job: string;
  search: string;
  stream: string;
  /** State of the units; empty for all. */
  state: string;
}

export interface JobLogs {
  state: ReadonlySignal<LogSearchState>;
  /** Continue until more lines are found, or all logs were read. */
  more(): Promise<void>;
  stop(): void;
}

/** Maximum number of lines per unit: matches, or the last lines. */
const MAX_MATCHES = 100;
const LAST_LINES = 4;
/** Number of displayed lines after which the search waits for the user. */
const LINES_PER_STEP = 400;

export function countLines(units: readonly UnitExcerpt[]): number {
  return units.reduce((sum, unit) => sum + unit.lines.length, 0);
}

export function searchLogs({ job, search, stream, state: unitState }: LogQuery): JobLogs {
  const control = new AbortController();
  const state = signal<LogSearchState>({ units: [], searched: 0, next: 0, isBusy: false, problem: undefined });
  const read = async () => {
    const { units, searched, next } = state.peek();
    const query: Query = {
      from: next,
      stream,
      lines: search ? MAX_MATCHES : LAST_LINES,
      ...(search ? { search } : {}),
      ...(unitState ? { state: unitState } : {}),
    };
    const answer = await get<LogExcerpts>(`/api/jobs/${job}/logs`, query, control.signal);
    state.value = {
      ...state.peek(),
      units: [...units, ...answer.units],
      searched: searched + answer.searched,
      next: answer.next,
    };
  };
  const more = async () => {
    if (state.peek().isBusy || state.peek().next === null) return;
    state.value = { ...state.peek(), isBusy: true, problem: undefined };
    const enough = countLines(state.peek().units) + LINES_PER_STEP;
    try {
      do await read();
      while (state.peek().next !== null && countLines(state.peek().units) < enough);
    } catch (error) {
      if (!control.signal.aborted) state.value = { ...state.peek(), problem: asProblem(error) };
    }
    state.value = { ...state.peek(), isBusy: false };
  };
  return { state, more, stop: () => control.abort() };
}
