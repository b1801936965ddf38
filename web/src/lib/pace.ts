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
export function updatePace(previous: Pace | undefined, done: number, time: number): Pace {
  if (!previous || done < previous.done) return { done, time, rate: null };
  const elapsedMs = time - previous.time;
  if (elapsedMs <= 0) return { ...previous, done };
  const currentRate = ((done - previous.done) * 1000) / elapsedMs;
  const oldWeight = Math.exp(-elapsedMs / MEMORY_MS);
  return {
    done,
    time,
    rate: previous.rate === null ? currentRate : oldWeight * previous.rate + (1 - oldWeight) * currentRate,
  };
}
