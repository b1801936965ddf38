/** Units/s from irregular counts. Pure functions. */

export interface Pace {
  done: number;
  /** Time of `done` in ms since 1970. */
  time: number;
  /** Smoothed rate in units/s; null after the first count. */
  rate: number | null;
}

/** Time in milliseconds over which an old rate loses most of its weight. */
const MEMORY_MS = 5000;

/** Return the pace after another count. A lower count restarts the measurement; a count at the same time is ignored. */
export function paced(before: Pace | undefined, done: number, time: number): Pace {
  if (!before || done < before.done) return { done, time, rate: null };
  const passed = time - before.time;
  if (passed <= 0) return { ...before, done };
  const now = ((done - before.done) * 1000) / passed;
  const kept = Math.exp(-passed / MEMORY_MS);
  return { done, time, rate: before.rate === null ? now : kept * before.rate + (1 - kept) * now };
}
