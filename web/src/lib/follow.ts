/** Requests data again after events that only announce changes, at a bounded rate. */

/** Minimum interval after an event, and interval without events while units are running, both in milliseconds. */
const SOON_MS = 300;
const BUSY_MS = 1000;
const IDLE_MS = 3000;
/** Maximum fraction of time spent on requests; larger responses are requested less often. */
const SHARE = 0.1;

/**
 * Return the milliseconds to wait before the next request, after an event or without one; the last request took `took`
 * ms.
 */
export function patience(event: boolean, sinceLast: number, took: number): number {
  const least = Math.max(BUSY_MS, took / SHARE);
  return event ? Math.max(SOON_MS, least - sinceLast) : Math.max(IDLE_MS, least);
}

export interface Follower {
  /** Report that something happened to the job. */
  poke(): void;
  stop(): void;
}

/**
 * Send requests now, soon after each `poke`, and every few seconds while `lasting` returns true, one at a time. `ask`
 * rejects on failure; the next request then follows at its usual time.
 */
export function follow(ask: (signal: AbortSignal) => Promise<unknown>, lasting: () => boolean): Follower {
  const control = new AbortController();
  let [timer, last, took, busy, poked] = [0, 0, 0, false, false];
  const plan = (event: boolean) => {
    clearTimeout(timer);
    const wait = patience(event, Date.now() - last, took);
    timer = setTimeout(round, wait) as unknown as number;
  };
  const round = async () => {
    [busy, poked] = [true, false];
    const begun = Date.now();
    const answered = await ask(control.signal).then(
      () => true,
      () => false,
    );
    [busy, last] = [false, Date.now()];
    took = answered ? last - begun : 0; // a timeout does not indicate the size of a response
    if (control.signal.aborted) return;
    if (poked) plan(true);
    else if (lasting()) plan(false);
  };
  void round();
  return {
    poke: () => {
      poked = true;
      if (!busy) plan(true);
    },
    stop: () => {
      control.abort();
      clearTimeout(timer);
    },
  };
}
