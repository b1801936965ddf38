/** The bins of a histogram and their places on its canvas. Pure. */

export interface Bin {
  from: number;
  to: number;
  count: number;
}

/** How tall bars are. Unequally wide ones are as tall as they are dense, so that areas compare; `dense` says so. */
export function heights(bins: readonly Bin[]): { dense: boolean; tall: number[] } {
  const widths = bins.map((bin) => bin.to - bin.from);
  const [least, most] = [Math.min(...widths), Math.max(...widths)];
  const dense = least > 0 && most > 1.001 * least;
  return { dense, tall: bins.map((bin, place) => (dense ? bin.count / (widths[place] as number) : bin.count)) };
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
