/** Counts in bins, as bars from zero, with a table twin. */

import { compact, integer } from "../lib/format";
import { token } from "../lib/theme";
import { EDGE, placeAt, type Bin } from "./bins";
import { useCanvas, type Draw } from "./canvas";
import { Canvas, Figure } from "./figure";

export type { Bin } from "./bins";

interface HistogramProps {
  title: string;
  bins: readonly Bin[];
  /** Unit of the values on the x axis, such as ms. */
  unit?: string;
  height?: number;
  /** Places to be marked, with their labels. */
  marks?: readonly { at: number; label: string }[];
  selected?: number | undefined;
  onPick?: (place: number) => void;
}

function summaryOf({ title, bins, unit = "" }: HistogramProps): string {
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const tallest = bins.reduce((best, bin) => (bin.count > best.count ? bin : best), { from: 0, to: 0, count: 0 });
  if (!total) return `${title}: no values.`;
  return (
    `${title}: ${integer(total)} values from ${compact(bins[0]?.from ?? 0)} to ${compact(bins.at(-1)?.to ?? 0)} ` +
    `${unit}; ` +
    `most, ${integer(tallest.count)}, between ${compact(tallest.from)} and ${compact(tallest.to)} ${unit}.`
  );
}

export function Histogram(props: HistogramProps) {
  const { title, bins, unit = "", height = 140, onPick } = props;
  const summary = summaryOf(props);
  const paint: Draw = (context, width, tall) => draw(context, width, tall, props);
  const canvas = useCanvas(paint);
  const pick = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const place = placeAt(event.clientX - box.left, box.width, bins);
    if (place !== undefined) onPick?.(place);
  };
  const twin = () => ({
    head: [`from${unit && `, ${unit}`}`, `to${unit && `, ${unit}`}`, "count"],
    rows: bins.map((bin) => [compact(bin.from), compact(bin.to), integer(bin.count)]),
  });
  return (
    <Figure title={title} summary={summary} twin={twin} saved={{ title, draw: paint }}>
      <div onClick={onPick ? pick : undefined} style={{ height: `${height}px` }} class="histogram">
        <Canvas at={canvas} summary={summary} class="fill" />
      </div>
    </Figure>
  );
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  { bins, unit = "", marks = [], selected }: HistogramProps,
): void {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return;
  const most = Math.max(1, ...bins.map((bin) => bin.count));
  const span = last.to - first.from || 1;
  const [wide, tall] = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
  const x = (value: number) => EDGE.left + ((value - first.from) / span) * wide;
  const y = (count: number) => EDGE.top + tall * (1 - count / most);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const count of [0, most]) context.fillText(compact(count), EDGE.left - 6, y(count));
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(compact(first.from), EDGE.left, height - 5);
  context.textAlign = "right";
  context.fillText(`${compact(last.to)} ${unit}`, width - EDGE.right, height - 5);
  for (const [place, bin] of bins.entries()) {
    if (!bin.count) continue;
    context.fillStyle = token(place === selected ? "ink" : "series-1");
    const gap = x(bin.to) - x(bin.from) > 4 ? 1 : 0;
    context.fillRect(x(bin.from), y(bin.count), Math.max(1, x(bin.to) - x(bin.from) - gap), y(0) - y(bin.count));
  }
  context.strokeStyle = token("line-strong");
  context.strokeRect(EDGE.left + 0.5, y(0) + 0.5, wide, 0);
  for (const mark of marks) {
    context.strokeStyle = context.fillStyle = token("ink");
    context.setLineDash([3, 3]);
    context.strokeRect(Math.round(x(mark.at)) + 0.5, EDGE.top, 0, tall);
    context.setLineDash([]);
    context.textAlign = x(mark.at) > width / 2 ? "right" : "left";
    context.fillText(mark.label, x(mark.at) + (x(mark.at) > width / 2 ? -4 : 4), EDGE.top + 9);
  }
}
