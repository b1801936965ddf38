/** Positions and axes of a scatter chart. Pure functions. */

/** Return the smallest and largest known value with a small margin. */
export function rangeOf(values: readonly (number | null)[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value === null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  const margin = (high - low) * 0.03 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

/** Return about `count` round numbers in a range. */
export function numberTicks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  for (let index = Math.ceil(low / step); index * step <= high; index += 1) ticks.push(index * step + 0); // no -0
  return ticks;
}

/** Return the index of the point nearest to x and y, within a distance; undefined if none is that near. */
export function nearestPoint(
  points: readonly ([number, number] | undefined)[],
  x: number,
  y: number,
  maxDistance: number,
): number | undefined {
  let [best, distance] = [undefined as number | undefined, maxDistance];
  for (const [index, point] of points.entries()) {
    if (!point) continue;
    const away = Math.hypot(point[0] - x, point[1] - y);
    if (away <= distance) [best, distance] = [index, away];
  }
  return best;
}
