/** Asking again for what events only announce: soon after one, and never more than answers take. */

/** Asked again at most this often after an event, and this often without one while units run. */
const SOON_MS = 300;
const BUSY_MS = 1000;
const IDLE_MS = 3000;
/** Share of the time that may be spent on answers: large ones are asked for less often. */
const SHARE = 0.1;

/** Milliseconds to wait before asking again: after an event, or without one; an answer took `took` ms. */
export function patience(event: boolean, sinceLast: number, took: number): number {
  const least = Math.max(BUSY_MS, took / SHARE);
  return event ? Math.max(SOON_MS, least - sinceLast) : Math.max(IDLE_MS, least);
}

export interface Follower {
  /** Something happened to the job. */
  poke(): void;
  stop(): void;
}

/**
 * Asks now, soon after each `poke`, and every few seconds while `lasting` says so; never twice at once. `ask` rejects
 * where nothing came of it: it is asked again when its time comes.
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
    took = answered ? last - begun : 0; // what timed out says nothing of how large an answer is
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
