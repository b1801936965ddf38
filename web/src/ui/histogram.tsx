/** Histogram with bars from zero and a table of its data. */

import { formatCompact, formatInteger } from "../lib/format";
import { token } from "../lib/theme";
import { EDGE, heights, placeAt, type Bin } from "./bins";
import { useCanvas, type Draw } from "./canvas";
import { Canvas, Figure } from "./figure";

export type { Bin } from "./bins";

interface HistogramProps {
  title: string;
  bins: readonly Bin[];
  /** Unit of the x axis, such as ms. */
  unit?: string;
  /** Name of the counted objects, such as replicas. */
  counted?: string;
  height?: number;
  /** Marked positions with labels. */
  marks?: readonly { at: number; label: string }[];
  selected?: number | undefined;
  onPick?: (place: number) => void;
}

function summaryOf({ title, bins, unit = "" }: HistogramProps): string {
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const { dense, tall } = heights(bins);
  const tallest = bins[tall.indexOf(Math.max(...tall))] ?? { from: 0, to: 0, count: 0 };
  if (!total) return `${title}: no values.`;
  return (
    `${title}: ${formatInteger(total)} values from ${formatCompact(bins[0]?.from ?? 0)} to ${formatCompact(bins.at(-1)?.to ?? 0)} ` +
    `${unit}; ` +
    `${dense ? "densest" : "most"}, ${formatInteger(tallest.count)}, between ${formatCompact(tallest.from)} and ` +
    `${formatCompact(tallest.to)} ${unit}.`
  );
}

export function Histogram(props: HistogramProps) {
  const { title, bins, unit = "", counted = "values", height = 140, onPick } = props;
  const note = heights(bins).dense && <span class="small soft">{`${counted} per ${unit || "unit"}`}</span>;
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
    rows: bins.map((bin) => [formatCompact(bin.from), formatCompact(bin.to), formatInteger(bin.count)]),
  });
  return (
    <Figure title={title} summary={summary} twin={twin} note={note} saved={{ title, draw: paint }}>
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
  const { dense, tall: values } = heights(bins);
  const most = Math.max(dense ? Number.MIN_VALUE : 1, ...values);
  const span = last.to - first.from || 1;
  // Labels of marks are above the bars.
  const head = marks.length ? 20 : EDGE.top;
  const [wide, tall] = [width - EDGE.left - EDGE.right, height - head - EDGE.bottom];
  const x = (value: number) => EDGE.left + ((value - first.from) / span) * wide;
  const y = (count: number) => head + tall * (1 - count / most);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const count of [0, most]) context.fillText(formatCompact(count), EDGE.left - 6, y(count));
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(formatCompact(first.from), EDGE.left, height - 5);
  context.textAlign = "right";
  context.fillText(`${formatCompact(last.to)} ${unit}`, width - EDGE.right, height - 5);
  for (const [place, bin] of bins.entries()) {
    if (!bin.count) continue;
    context.fillStyle = token(place === selected ? "ink" : "series-1");
    const gap = x(bin.to) - x(bin.from) > 4 ? 1 : 0;
    const up = y(values[place] as number);
    context.fillRect(x(bin.from), up, Math.max(1, x(bin.to) - x(bin.from) - gap), y(0) - up);
  }
  context.strokeStyle = token("line-strong");
  context.strokeRect(EDGE.left + 0.5, y(0) + 0.5, wide, 0);
  for (const mark of marks) {
    context.strokeStyle = context.fillStyle = token("ink");
    context.setLineDash([3, 3]);
    context.strokeRect(Math.round(x(mark.at)) + 0.5, 4, 0, head + tall - 4);
    context.setLineDash([]);
    context.textAlign = x(mark.at) > width / 2 ? "right" : "left";
    context.fillText(mark.label, x(mark.at) + (x(mark.at) > width / 2 ? -4 : 4), 13);
  }
}
