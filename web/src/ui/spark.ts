/** A sparkline as SVG paths. Pure functions. */

export interface Sparks {
  /** Path of the line; empty without known values. */
  line: string;
  /** Path of the area below the line. */
  area: string;
  /** Position of the last value if it is known. */
  end: { x: number; y: number } | undefined;
}

/** Margin for half the line's width and the dot at its end. */
const EDGE = 2;

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** Return runs of known values as index ranges. */
function runs(values: readonly (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  for (const [place, value] of values.entries()) {
    if (value === null || !Number.isFinite(value)) continue;
    const last = found.at(-1);
    if (last?.[1] === place - 1) last[1] = place;
    else found.push([place, place]);
  }
  return found;
}

/** Return the paths of values (oldest first) for a size in pixels, from zero to the maximum. */
export function sparks(values: readonly (number | null)[], width: number, height: number): Sparks {
  const most = values.reduce<number>((high, value) => Math.max(high, value ?? 0), 0) || 1;
  const x = (place: number) => round(EDGE + (place / Math.max(1, values.length - 1)) * (width - 2 * EDGE));
  const y = (value: number) => round(height - EDGE - (Math.max(0, value) / most) * (height - 2 * EDGE));
  const at = (place: number) => `${x(place)} ${y(values[place] as number)}`;
  let [line, area] = ["", ""];
  for (const [from, to] of runs(values)) {
    const points = Array.from({ length: to - from + 1 }, (_, place) => at(from + place)).join("L");
    // Draw a single value as a dash, which would otherwise be invisible.
    line += `M${points}${from === to ? `h1` : ""}`;
    area += `M${x(from)} ${y(0)}L${points}L${x(to)} ${y(0)}Z`;
  }
  const last = values.at(-1);
  const known = last !== null && last !== undefined && Number.isFinite(last);
  return { line, area, end: known ? { x: x(values.length - 1), y: y(last) } : undefined };
}
