/** Requests of a component while it is shown. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem, type Job, type Problem } from "../lib/api";
import { loadResult } from "../lib/jobs";

export interface Answer<T> {
  value: T | undefined;
  /** Error of the last request. */
  problem: Problem | undefined;
}

/** Return the response of `ask`, repeated when one of `inputs` changes and on `again`. */
export function useAnswer<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[] = [],
): Answer<T> & { again: () => void } {
  const answer = useSignal<Answer<T>>({ value: undefined, problem: undefined });
  const repeats = useSignal(0);
  useEffect(() => {
    const control = new AbortController();
    ask(control.signal).then(
      (value) => {
        if (!control.signal.aborted) answer.value = { value, problem: undefined };
      },
      (error: unknown) => {
        if (!control.signal.aborted) answer.value = { ...answer.peek(), problem: asProblem(error) };
      },
    );
    return () => control.abort();
  }, [...inputs, repeats.value]);
  const again = () => {
    answer.value = { ...answer.peek(), problem: undefined };
    repeats.value += 1;
  };
  return { ...answer.value, again };
}

/** Return the result of a finished job; `ask(true)` requests the partial result. */
export function useResult(job: Job) {
  const answer = useSignal<{ value: unknown; partial: boolean } | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const ask = async (partial: boolean) => {
    problem.value = undefined;
    try {
      answer.value = { value: (await loadResult(job.job_id, partial)).result, partial };
    } catch (error) {
      problem.value = asProblem(error);
    }
  };
  useEffect(() => {
    if (job.state === "done") void ask(false);
  }, [job.state]);
  return { shown: answer.value, problem: problem.value, ask: (partial: boolean) => void ask(partial) };
}
