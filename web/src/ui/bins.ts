/** Bins of a histogram and their positions on the canvas. Pure functions. */

export interface Bin {
  from: number;
  to: number;
  count: number;
}

/** Return the heights of the bars. Bars of different widths show densities (`dense`), so that areas are comparable. */
export function heights(bins: readonly Bin[]): { dense: boolean; tall: number[] } {
  const widths = bins.map((bin) => bin.to - bin.from);
  const [least, most] = [Math.min(...widths), Math.max(...widths)];
  const dense = least > 0 && most > 1.001 * least;
  return { dense, tall: bins.map((bin, place) => (dense ? bin.count / (widths[place] as number) : bin.count)) };
}

/** Margin for labels in pixels. */
export const EDGE = { left: 44, right: 8, top: 8, bottom: 20 };

/** Return the bin at x pixels from the left edge of a canvas. */
export function placeAt(x: number, width: number, bins: readonly Bin[]): number | undefined {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return undefined;
  const value = first.from + ((x - EDGE.left) / (width - EDGE.left - EDGE.right)) * (last.to - first.from);
  const place = bins.findIndex((bin) => value >= bin.from && value < bin.to);
  return place < 0 ? undefined : place;
}
