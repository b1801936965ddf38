/** A sparkline as SVG paths. Pure functions. */

export interface SparklinePaths {
  /** Path of the line; empty without known values. */
  line: string;
  /** Path of the area below the line. */
  area: string;
  /** Position of the last value if it is known. */
  end: { x: number; y: number } | undefined;
}

/** Margin for half the line's width and the dot at its end. */
const MARGIN = 2;

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** Return runs of known values as index ranges. */
function findRuns(values: readonly (number | null)[]): [number, number][] {
  const result: [number, number][] = [];
  for (const [index, value] of values.entries()) {
    if (value === null || !Number.isFinite(value)) continue;
    const last = result.at(-1);
    if (last?.[1] === index - 1) last[1] = index;
    else result.push([index, index]);
  }
  return result;
}

/** Return the paths of values (oldest first) for a size in pixels, from zero to the maximum. */
export function createSparkline(values: readonly (number | null)[], width: number, height: number): SparklinePaths {
  const max = values.reduce<number>((high, value) => Math.max(high, value ?? 0), 0) || 1;
  const x = (index: number) => round(MARGIN + (index / Math.max(1, values.length - 1)) * (width - 2 * MARGIN));
  const y = (value: number) => round(height - MARGIN - (Math.max(0, value) / max) * (height - 2 * MARGIN));
  const point = (index: number) => `${x(index)} ${y(values[index] as number)}`;
  let [line, area] = ["", ""];
  for (const [from, to] of findRuns(values)) {
    const points = Array.from({ length: to - from + 1 }, (_, index) => point(from + index)).join("L");
    // Draw a single value as a dash, which would otherwise be invisible.
    line += `M${points}${from === to ? `h1` : ""}`;
    area += `M${x(from)} ${y(0)}L${points}L${x(to)} ${y(0)}Z`;
  }
  const last = values.at(-1);
  const isKnown = last !== null && last !== undefined && Number.isFinite(last);
  return { line, area, end: isKnown ? { x: x(values.length - 1), y: y(last) } : undefined };
}
