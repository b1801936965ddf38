/** Units/s from counts that come now and then. Pure. */

export interface Pace {
  done: number;
  /** ms since 1970 of `done`. */
  time: number;
  /** Units/s, smoothed; null after the first count. */
  rate: number | null;
}

/** Over this long an old rate loses most of its weight. */
const MEMORY_MS = 5000;

/** The pace after one more count. A count that fell, or came at the same time, starts anew or changes nothing. */
export function paced(before: Pace | undefined, done: number, time: number): Pace {
  if (!before || done < before.done) return { done, time, rate: null };
  const passed = time - before.time;
  if (passed <= 0) return { ...before, done };
  const now = ((done - before.done) * 1000) / passed;
  const kept = Math.exp(-passed / MEMORY_MS);
  return { done, time, rate: before.rate === null ? now : kept * before.rate + (1 - kept) * now };
}
