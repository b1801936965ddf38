/** Ends and ticks of axes. Pure functions. */

const ROUND_FACTORS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];

/** Return a round number at or above a value; 1 for nothing. With binary, round in KiB, MiB and so on. */
export function roundUp(value: number, isBinary = false): number {
  if (!(value > 0)) return 1;
  const unit = isBinary ? 1024 ** Math.max(0, Math.floor(Math.log2(value) / 10)) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit)) * unit;
  const step = ROUND_FACTORS.find((each) => each * power >= value * (1 - 1e-12));
  return (step ?? 10) * power;
}

const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400];

/** Return up to `maxTicks` round times in a range. */
export function timeTicks(from: number, to: number, maxTicks: number): number[] {
  const span = to - from;
  const step = ROUND_SECONDS.find((each) => span / each <= Math.max(1, maxTicks)) ?? 86_400;
  const places: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) places.push(at);
  return places;
}

/** Return the index of the time nearest to `time`; -1 if there is none. */
export function indexAt(times: readonly number[], time: number): number {
  let [low, high] = [0, times.length - 1];
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] as number) < time) low = middle + 1;
    else high = middle;
  }
  const before = times[low - 1];
  return before !== undefined && time - before < (times[low] as number) - time ? low - 1 : low;
}
