/** Histogram with bars from zero and a table of its data. */

import { formatCompact, formatInteger } from "../lib/format";
import { token } from "../lib/theme";
import { MARGIN, computeBarHeights, binAt, type Bin } from "./bins";
import { useCanvas, type Draw } from "./canvas";
import { Canvas, Figure } from "./figure";

export type { Bin } from "./bins";

interface HistogramProps {
  title: string;
  bins: readonly Bin[];
  /** Unit of the x axis, such as ms. */
  unit?: string;
  /** Name of the counted objects, such as replicas. */
  noun?: string;
  height?: number;
  /** Marked positions with labels. */
  marks?: readonly { at: number; label: string }[];
  selectedBin?: number | undefined;
  onSelect?: (index: number) => void;
}

function describe({ title, bins, unit = "" }: HistogramProps): string {
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const { isDensity, values: heights } = computeBarHeights(bins);
  const tallest = bins[heights.indexOf(Math.max(...heights))] ?? { from: 0, to: 0, count: 0 };
  if (!total) return `${title}: no values.`;
  return (
    `${title}: ${formatInteger(total)} values from ${formatCompact(bins[0]?.from ?? 0)} to ` +
    `${formatCompact(bins.at(-1)?.to ?? 0)} ${unit}; ` +
    `${isDensity ? "densest" : "most"}, ${formatInteger(tallest.count)}, between ${formatCompact(tallest.from)} and ` +
    `${formatCompact(tallest.to)} ${unit}.`
  );
}

export function Histogram(props: HistogramProps) {
  const { title, bins, unit = "", noun = "values", height = 140, onSelect } = props;
  const note = computeBarHeights(bins).isDensity && <span class="small soft">{`${noun} per ${unit || "unit"}`}</span>;
  const summary = describe(props);
  const paint: Draw = (context, width, tall) => draw(context, width, tall, props);
  const canvas = useCanvas(paint);
  const selectBin = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const index = binAt(event.clientX - box.left, box.width, bins);
    if (index !== undefined) onSelect?.(index);
  };
  const getTable = () => ({
    head: [`from${unit && `, ${unit}`}`, `to${unit && `, ${unit}`}`, "count"],
    rows: bins.map((bin) => [formatCompact(bin.from), formatCompact(bin.to), formatInteger(bin.count)]),
  });
  return (
    <Figure title={title} summary={summary} getTable={getTable} note={note} picture={{ title, draw: paint }}>
      <div onClick={onSelect ? selectBin : undefined} style={{ height: `${height}px` }} class="histogram">
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
    </Figure>
  );
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  { bins, unit = "", marks = [], selectedBin }: HistogramProps,
): void {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return;
  const { isDensity, values } = computeBarHeights(bins);
  const max = Math.max(isDensity ? Number.MIN_VALUE : 1, ...values);
  const span = last.to - first.from || 1;
  // Labels of marks are above the bars.
  const top = marks.length ? 20 : MARGIN.top;
  const [plotWidth, plotHeight] = [width - MARGIN.left - MARGIN.right, height - top - MARGIN.bottom];
  const x = (value: number) => MARGIN.left + ((value - first.from) / span) * plotWidth;
  const y = (count: number) => top + plotHeight * (1 - count / max);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const count of [0, max]) context.fillText(formatCompact(count), MARGIN.left - 6, y(count));
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(formatCompact(first.from), MARGIN.left, height - 5);
  context.textAlign = "right";
  context.fillText(`${formatCompact(last.to)} ${unit}`, width - MARGIN.right, height - 5);
  for (const [index, bin] of bins.entries()) {
    if (!bin.count) continue;
    context.fillStyle = token(index === selectedBin ? "ink" : "series-1");
    const gap = x(bin.to) - x(bin.from) > 4 ? 1 : 0;
    const barTop = y(values[index] as number);
    context.fillRect(x(bin.from), barTop, Math.max(1, x(bin.to) - x(bin.from) - gap), y(0) - barTop);
  }
  context.strokeStyle = token("line-strong");
  context.strokeRect(MARGIN.left + 0.5, y(0) + 0.5, plotWidth, 0);
  for (const mark of marks) {
    context.strokeStyle = context.fillStyle = token("ink");
    context.setLineDash([3, 3]);
    context.strokeRect(Math.round(x(mark.at)) + 0.5, 4, 0, top + plotHeight - 4);
    context.setLineDash([]);
    context.textAlign = x(mark.at) > width / 2 ? "right" : "left";
    context.fillText(mark.label, x(mark.at) + (x(mark.at) > width / 2 ? -4 : 4), 13);
  }
}
