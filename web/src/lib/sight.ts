/** Visible rows of a long list. Pure functions. */

/**
 * Maximum height of a list in pixels. Browsers draw nothing beyond about 33 million pixels, so longer lists scroll in
 * larger steps.
 */
const MOST_PIXELS = 8_000_000;

export interface Sight {
  first: number;
  last: number;
  /** Height of the list and top of its first visible row, in pixels. */
  height: number;
  top: number;
}

/** Return the visible rows of a list of `count` rows, scrolled to `scrolled` in a box `tall` pixels high. */
export function sight(count: number, row: number, scrolled: number, tall: number): Sight {
  const height = Math.min(count * row, MOST_PIXELS);
  const rows = Math.ceil(tall / row) + 1;
  const [room, hidden] = [Math.max(1, height - tall), Math.max(0, count * row - tall)];
  const share = Math.min(1, Math.max(0, scrolled) / room);
  const offset = count * row > MOST_PIXELS ? share * hidden : Math.max(0, scrolled);
  const first = Math.min(Math.max(0, count - 1), Math.floor(offset / row));
  const last = Math.min(count, first + rows);
  return { first, last, height, top: Math.max(0, scrolled) - (offset - first * row) };
}

/** Return the scroll position that centers a row. */
export function scrollTo(line: number, count: number, row: number, tall: number): number {
  const wanted = Math.max(0, line * row - (tall - row) / 2);
  if (count * row <= MOST_PIXELS) return wanted;
  return (Math.min(wanted, count * row - tall) / (count * row - tall)) * (MOST_PIXELS - tall);
}
