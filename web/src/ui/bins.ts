/** The bins of a histogram and their places on its canvas. Pure. */

export interface Bin {
  from: number;
  to: number;
  count: number;
}

/** Pixels around the bars, for their labels. */
export const EDGE = { left: 44, right: 8, top: 8, bottom: 20 };

/** The bin under x pixels from the left edge of a canvas of that width. */
export function placeAt(x: number, width: number, bins: readonly Bin[]): number | undefined {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return undefined;
  const value = first.from + ((x - EDGE.left) / (width - EDGE.left - EDGE.right)) * (last.to - first.from);
  const place = bins.findIndex((bin) => value >= bin.from && value < bin.to);
  return place < 0 ? undefined : place;
}
