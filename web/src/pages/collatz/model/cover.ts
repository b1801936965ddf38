/** Which part of the view a finer source has drawn already, so that no number is drawn twice. Pure. */

/** From and to, in numbers from the left edge; disjoint, ascending. */
export type Covered = readonly (readonly [number, number])[];

/** What of [from, to) is left. */
export function left(covered: Covered, from: number, to: number): [number, number][] {
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

/** With more parts covered. */
export function joined(covered: Covered, more: Covered): Covered {
  const all = [...covered, ...more].sort((one, other) => one[0] - other[0]);
  const kept: [number, number][] = [];
  for (const [from, to] of all) {
    const last = kept.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else if (from < to) kept.push([from, to]);
  }
  return kept;
}
