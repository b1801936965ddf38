/** Requests data again after events that only announce changes, at a bounded rate. */

/** Minimum interval after an event, and interval without events while units are running, both in milliseconds. */
const SOON_MS = 300;
const BUSY_MS = 1000;
const IDLE_MS = 3000;
/** Maximum fraction of time spent on requests; larger responses are requested less often. */
const MAX_REQUEST_SHARE = 0.1;

/**
 * Return the milliseconds to wait before the next request, after an event or without one. `durationMs` is the duration
 * of the last request.
 */
export function nextDelay(hasEvent: boolean, sinceLastMs: number, durationMs: number): number {
  const minimum = Math.max(BUSY_MS, durationMs / MAX_REQUEST_SHARE);
  return hasEvent ? Math.max(SOON_MS, minimum - sinceLastMs) : Math.max(IDLE_MS, minimum);
}

export interface Follower {
  /** Report that something happened to the job. */
  notify(): void;
  stop(): void;
}

/**
 * Send requests now, soon after each `notify`, and every few seconds while `isActive` returns true, one at a time.
 * `request` rejects on failure; the next request then follows at its usual time.
 */
export function follow(request: (signal: AbortSignal) => Promise<unknown>, isActive: () => boolean): Follower {
  const control = new AbortController();
  let [timer, last, durationMs, isBusy, isNotified] = [0, 0, 0, false, false];
  const schedule = (hasEvent: boolean) => {
    clearTimeout(timer);
    const wait = nextDelay(hasEvent, Date.now() - last, durationMs);
    timer = setTimeout(sendRequest, wait) as unknown as number;
  };
  const sendRequest = async () => {
    [isBusy, isNotified] = [true, false];
    const start = Date.now();
    const isSuccess = await request(control.signal).then(
      () => true,
      () => false,
    );
    [isBusy, last] = [false, Date.now()];
    durationMs = isSuccess ? last - start : 0; // a timeout does not indicate the size of a response
    if (control.signal.aborted) return;
    if (isNotified) schedule(true);
    else if (isActive()) schedule(false);
  };
  void sendRequest();
  return {
    notify: () => {
      isNotified = true;
      if (!isBusy) schedule(true);
    },
    stop: () => {
      control.abort();
      clearTimeout(timer);
    },
  };
}
