/** Polls data that events do not report, while the page is visible and the cluster reachable, one request at a time. */

import { effect, useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem, Problem } from "../../../lib/api";
import { connection } from "../../../lib/live";

export interface PollState<T> {
  value: T | undefined;
  /** Error of the last request. */
  problem: Problem | undefined;
}

/**
 * Return the latest response of `send`, repeated every `seconds` while the component is shown. `key` identifies the
 * request.
 */
export function usePolling<T>(
  key: string,
  seconds: number,
  send: (signal: AbortSignal) => Promise<T>,
): Signal<PollState<T>> {
  const state = useSignal<PollState<T>>({ value: undefined, problem: undefined });
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    let isBusy = false;
    const poll = async () => {
      timer = 0;
      if (isBusy) return;
      isBusy = true;
      try {
        const value = await send(control.signal);
        if (!control.signal.aborted) state.value = { value, problem: undefined };
      } catch (error) {
        if (control.signal.aborted) return;
        state.value = {
          ...state.peek(),
          problem: asProblem(error),
        };
        // The cluster does not have this resource, so stop polling.
        if (error instanceof Problem && error.status === 404) return;
      }
      isBusy = false;
      schedule();
    };
    const schedule = () => {
      if (!timer && !document.hidden && connection.peek() === "live" && !control.signal.aborted)
        timer = window.setTimeout(poll, seconds * 1000);
    };
    const wake = () => {
      if (!document.hidden && !timer) void poll();
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
  return state;
}
