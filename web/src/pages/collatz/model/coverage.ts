/** Parts of the view that a finer source has already drawn, so that each number is drawn once. Pure functions. */

/** Disjoint ranges in ascending order, as distances from the left edge. */
export type CoveredRanges = readonly (readonly [number, number])[];

/** Return the parts of [from, to) that are not covered. */
export function uncoveredParts(covered: CoveredRanges, from: number, to: number): [number, number][] {
  const parts: [number, number][] = [];
  let at = from;
  for (const [begin, end] of covered) {
    if (end <= at) continue;
    if (begin >= to) break;
    if (begin > at) parts.push([at, begin]);
    at = end;
  }
  if (at < to) parts.push([at, to]);
  return parts;
}

/** Return the union of two coverages. */
export function joinRanges(covered: CoveredRanges, more: CoveredRanges): CoveredRanges {
  const all = [...covered, ...more].sort((one, other) => one[0] - other[0]);
  const kept: [number, number][] = [];
  for (const [from, to] of all) {
    const last = kept.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else if (from < to) kept.push([from, to]);
  }
  return kept;
}
