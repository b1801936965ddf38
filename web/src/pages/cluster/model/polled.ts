/** Polls data that events do not report, while the page is visible and the cluster reachable, one request at a time. */

import { effect, useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem, Problem } from "../../../lib/api";
import { connection } from "../../../lib/live";

export interface Polled<T> {
  value: T | undefined;
  /** Error of the last request. */
  problem: Problem | undefined;
}

/**
 * Return the latest response of `ask`, repeated every `seconds` while the component is shown. `key` identifies the
 * request.
 */
export function usePolled<T>(
  key: string,
  seconds: number,
  ask: (signal: AbortSignal) => Promise<T>,
): Signal<Polled<T>> {
  const answer = useSignal<Polled<T>>({ value: undefined, problem: undefined });
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    let busy = false;
    const round = async () => {
      timer = 0;
      if (busy) return;
      busy = true;
      try {
        const value = await ask(control.signal);
        if (!control.signal.aborted) answer.value = { value, problem: undefined };
      } catch (error) {
        if (control.signal.aborted) return;
        answer.value = {
          ...answer.peek(),
          problem: asProblem(error),
        };
        // The cluster does not have this resource, so stop polling.
        if (error instanceof Problem && error.status === 404) return;
      }
      busy = false;
      plan();
    };
    const plan = () => {
      if (!timer && !document.hidden && connection.peek() === "live" && !control.signal.aborted)
        timer = window.setTimeout(round, seconds * 1000);
    };
    const wake = () => {
      if (!document.hidden && !timer) void round();
    };
    const stop = effect(() => {
      if (connection.value === "live") queueMicrotask(wake);
    });
    document.addEventListener("visibilitychange", wake);
    return () => {
      control.abort();
      clearTimeout(timer);
      stop();
      document.removeEventListener("visibilitychange", wake);
    };
  }, [key]);
  return answer;
}
