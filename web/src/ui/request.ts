/** Requests of a component while it is shown. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem, type Job, type Problem } from "../lib/api";
import { loadResult } from "../lib/jobs";

export interface RequestState<T> {
  value: T | undefined;
  /** Error of the last request. */
  problem: Problem | undefined;
}

/** Return the response of `send`, repeated when one of `inputs` changes and on `repeat`. */
export function useRequest<T>(
  send: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[] = [],
): RequestState<T> & { repeat: () => void } {
  const state = useSignal<RequestState<T>>({ value: undefined, problem: undefined });
  const repeats = useSignal(0);
  useEffect(() => {
    const control = new AbortController();
    send(control.signal).then(
      (value) => {
        if (!control.signal.aborted) state.value = { value, problem: undefined };
      },
      (error: unknown) => {
        if (!control.signal.aborted) state.value = { ...state.peek(), problem: asProblem(error) };
      },
    );
    return () => control.abort();
  }, [...inputs, repeats.value]);
  const repeat = () => {
    state.value = { ...state.peek(), problem: undefined };
    repeats.value += 1;
  };
  return { ...state.value, repeat };
}

/** Return the result of a finished job; `ask(true)` requests the partial result. */
export function useResult(job: Job) {
  const response = useSignal<{ value: unknown; partial: boolean } | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const ask = async (partial: boolean) => {
    problem.value = undefined;
    try {
      response.value = { value: (await loadResult(job.job_id, partial)).result, partial };
    } catch (error) {
      problem.value = asProblem(error);
    }
  };
  useEffect(() => {
    if (job.state === "done") void ask(false);
  }, [job.state]);
  return { response: response.value, problem: problem.value, ask: (partial: boolean) => void ask(partial) };
}
