/** The visible part of the numbers, exact at the left edge for any size. Pure functions. */

export interface View {
  /** The number at the left edge. */
  base: bigint;
  /** Offset of the edge within this number, in [0, 1). */
  frac: number;
  /** Number of values from edge to edge. */
  span: number;
}

/** Minimum number of visible values. */
export const MIN_SPAN = 8;

export interface Range {
  first: bigint;
  /** End of the range, exclusive. */
  end: bigint;
}

/** Move the view to the right by `shift` numbers. */
export function moveView({ base, frac, span }: View, shift: number): View {
  const whole = Math.floor(frac + shift);
  return { base: base + BigInt(whole), frac: Math.min(1 - 1e-9, Math.max(0, frac + shift - whole)), span };
}

/** Return the distance from the left edge to n in numbers. */
export function distance(view: View, n: bigint): number {
  return Number(n - view.base) - view.frac;
}

/** Return the number at a position in [0, 1] of the width. */
export function numberAt(view: View, position: number): bigint {
  return moveView(view, position * view.span).base;
}

/** Limit a view's span and edges. */
export function clampView(view: View, limits: Range): View {
  const max = Number(limits.end - limits.first);
  const span = Math.min(max, Math.max(Math.min(MIN_SPAN, max), view.span));
  if (view.base < limits.first) return { base: limits.first, frac: 0, span };
  const over = distance({ ...view, span }, limits.end) - span;
  if (over >= 0) return { ...view, span };
  const back = { base: limits.end, frac: 0, span };
  const result = moveView(back, -span);
  return result.base < limits.first ? { base: limits.first, frac: 0, span } : result;
}

/** Zoom around `position`, which stays fixed; factor > 1 shows more numbers. */
export function zoomView(view: View, factor: number, position: number, limits: Range): View {
  const max = Number(limits.end - limits.first);
  const span = Math.min(max, Math.max(Math.min(MIN_SPAN, max), view.span * factor));
  return clampView({ ...moveView(view, (view.span - span) * position), span }, limits);
}

export function panView(view: View, share: number, limits: Range): View {
  return clampView(moveView(view, share * view.span), limits);
}

export function fullView(range: Range): View {
  return { base: range.first, frac: 0, span: Number(range.end - range.first) };
}

/** Return the numbers that are at least partly visible. */
export function visibleRange(view: View, limits: Range): Range {
  const last = numberAt(view, 1);
  const edge = moveView(view, view.span).frac > 1e-9 ? last + 1n : last;
  const end = edge < limits.end ? edge : limits.end;
  return { first: view.base > limits.first ? view.base : limits.first, end };
}

/** Return a view with a number in its center. */
export function viewAround(n: bigint, span: number, limits: Range): View {
  return clampView(moveView({ base: n, frac: 0, span }, 0.5 - span / 2), limits);
}

/** Bits of the size of a chunk of exact values, to which chunks are aligned. */
export const CHUNK_BITS = 16;
export const CHUNK = 2 ** CHUNK_BITS;

/** Return the chunks that overlap a range. */
export function overlappingChunks({ first, end }: Range): bigint[] {
  const shift = BigInt(CHUNK_BITS);
  const indices: bigint[] = [];
  for (let index = first >> shift; index << shift < end; index += 1n) indices.push(index);
  return indices;
}

/**
 * Return the window of a job: columns of 2^k numbers that cover a range, with the smallest k that needs no more than
 * `max` columns.
 */
export function alignRange({ first, end }: Range, max: number, limits: Range): Range & { k: number } {
  let k = 0;
  for (;;) {
    const shift = BigInt(k);
    const low = (first >> shift) << shift;
    const high = -(-end >> shift) << shift;
    if ((high - low) >> shift <= BigInt(max)) {
      return { first: low > limits.first ? low : limits.first, end: high < limits.end ? high : limits.end, k };
    }
    k += 1;
  }
}

/** Return about `about` round numbers of [first, first + span] for an axis. */
export function roundTicks(view: View, about: number): bigint[] {
  const step = roundStep(view.span / Math.max(1, about));
  const places: bigint[] = [];
  const end = numberAt(view, 1);
  for (let at = ((view.base + step - 1n) / step) * step; at <= end; at += step) places.push(at);
  return places;
}

/** Return the smallest 1, 2 or 5 times a power of ten that is at least `min`. */
export function roundStep(min: number): bigint {
  if (min <= 1) return 1n;
  const tens = Math.floor(Math.log10(min));
  const rest = min / 10 ** tens;
  const head = rest <= 1 ? 1n : rest <= 2 ? 2n : rest <= 5 ? 5n : 10n;
  return head * 10n ** BigInt(tens);
}
