/** Visible rows of a long list. Pure functions. */

/**
 * Maximum height of a list in pixels. Browsers draw nothing beyond about 33 million pixels, so longer lists scroll in
 * larger steps.
 */
const MAX_LIST_PIXELS = 8_000_000;

export interface VisibleRows {
  first: number;
  last: number;
  /** Height of the list and top of its first visible row, in pixels. */
  height: number;
  top: number;
}

/** Return the visible rows of a list of `count` rows, at a scroll position in a box. Heights are in pixels. */
export function computeVisibleRows(
  count: number,
  rowHeight: number,
  scrollTop: number,
  boxHeight: number,
): VisibleRows {
  const height = Math.min(count * rowHeight, MAX_LIST_PIXELS);
  const rows = Math.ceil(boxHeight / rowHeight) + 1;
  const [scrollRange, hiddenHeight] = [Math.max(1, height - boxHeight), Math.max(0, count * rowHeight - boxHeight)];
  const share = Math.min(1, Math.max(0, scrollTop) / scrollRange);
  const offset = count * rowHeight > MAX_LIST_PIXELS ? share * hiddenHeight : Math.max(0, scrollTop);
  const first = Math.min(Math.max(0, count - 1), Math.floor(offset / rowHeight));
  const last = Math.min(count, first + rows);
  return { first, last, height, top: Math.max(0, scrollTop) - (offset - first * rowHeight) };
}

/** Return the scroll position that centers a row. */
export function scrollTopOf(line: number, count: number, rowHeight: number, boxHeight: number): number {
  const desired = Math.max(0, line * rowHeight - (boxHeight - rowHeight) / 2);
  if (count * rowHeight <= MAX_LIST_PIXELS) return desired;
  return (
    (Math.min(desired, count * rowHeight - boxHeight) / (count * rowHeight - boxHeight)) * (MAX_LIST_PIXELS - boxHeight)
  );
}
