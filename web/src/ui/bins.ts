/** Bins of a histogram and their positions on the canvas. Pure functions. */

export interface Bin {
  from: number;
  to: number;
  count: number;
}

/** Return the heights of the bars. Bars of different widths show densities, so that areas are comparable. */
export function computeBarHeights(bins: readonly Bin[]): { isDensity: boolean; values: number[] } {
  const widths = bins.map((bin) => bin.to - bin.from);
  const [min, max] = [Math.min(...widths), Math.max(...widths)];
  const isDensity = min > 0 && max > 1.001 * min;
  return {
    isDensity,
    values: bins.map((bin, index) => (isDensity ? bin.count / (widths[index] as number) : bin.count)),
  };
}

/** Margin for labels in pixels. */
export const MARGIN = { left: 44, right: 8, top: 8, bottom: 20 };

/** Return the bin at x pixels from the left edge of a canvas. */
export function binAt(x: number, width: number, bins: readonly Bin[]): number | undefined {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return undefined;
  const value = first.from + ((x - MARGIN.left) / (width - MARGIN.left - MARGIN.right)) * (last.to - first.from);
  const index = bins.findIndex((bin) => value >= bin.from && value < bin.to);
  return index < 0 ? undefined : index;
}
