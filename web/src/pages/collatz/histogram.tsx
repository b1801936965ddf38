/** Histogram of steps in the selection or the view. */

import { useEffect } from "preact/hooks";
import {
  LENGTH_CLASSES,
  countClasses,
  expectedMean,
  logNormalDensity,
  summarize,
  type HistogramSummary,
} from "./model/fit";
import { formatCompact, formatInteger, formatPercent } from "../../lib/format";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { saveHistogram, saveNumbers } from "./model/page-actions";
import { countHistogram, dataVersion, requestValues, type CountedHistogram } from "./model/data";
import { setFont, drawXTicks, drawYTicks, type Box } from "./model/plot";
import { results } from "./model/run";
import { countedRange, selectRange, selection, state } from "./model/state";
import { ClassMark } from "./classes";
import { CheckboxField } from "./fields";
import { usePicture } from "./model/savable-pictures";

function countVisible(): CountedHistogram {
  dataVersion.value;
  const range = countedRange();
  // a finished job over exactly this range counted every number
  for (const each of results.value.values()) {
    if (each.range.first === range.first && each.range.end === range.end && each.histogram.length) {
      return { histogram: new Map(each.histogram), range, source: each.isComplete ? "exact" : "columns" };
    }
  }
  return countHistogram(range);
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  { histogram, range }: CountedHistogram,
  figures: HistogramSummary,
): void {
  setFont(context);
  const box: Box = { left: 60, top: 10, width: width - 70, height: height - 40 };
  const [low, high] = [Math.max(0, figures.min - 2), figures.max + 3];
  const density = logNormalDensity(figures);
  const max = Math.max(1, ...histogram.values());
  const top = (state.logcounts.value ? Math.log1p(max) : max) * 1.05;
  const up = (count: number) => (state.logcounts.value ? Math.log1p(count) : count);
  const x = (steps: number) => box.left + (box.width * (steps - low)) / (high - low);
  const y = (count: number) => box.top + box.height * (1 - Math.min(top, up(count)) / top);
  drawYTicks(context, box, 0, top, (value) =>
    formatCompact(state.logcounts.value ? Math.round(Math.expm1(value)) : value),
  );
  drawXTicks(context, box, low, high, formatInteger, "steps to 1");
  context.fillStyle = token("series-1");
  const bar = Math.max(1, box.width / (high - low) - (box.width / (high - low) > 4 ? 1 : 0));
  for (const [steps, count] of histogram) context.fillRect(x(steps), y(count), bar, box.top + box.height - y(count));
  if (figures.deviation > 0) drawLogNormal(context, (steps) => y(figures.count * density(steps)), low, high, x);
  drawVertical(context, box, x(expectedMean(range.first, range.end)), "expected mean", true);
  drawVertical(context, box, x(figures.mean), "mean", false);
}

function drawLogNormal(
  context: CanvasRenderingContext2D,
  y: (steps: number) => number,
  low: number,
  high: number,
  x: (steps: number) => number,
): void {
  context.beginPath();
  for (let index = 0; index <= 200; index += 1) {
    const steps = low + ((high - low) * index) / 200;
    context.lineTo(x(steps), y(steps));
  }
  context.strokeStyle = token("series-2");
  context.lineWidth = 2;
  context.stroke();
}

function drawVertical(context: CanvasRenderingContext2D, box: Box, x: number, text: string, dashed: boolean): void {
  if (x < box.left || x > box.left + box.width) return;
  context.strokeStyle = context.fillStyle = token("ink");
  context.lineWidth = 1.5;
  context.setLineDash(dashed ? [6, 4] : []);
  context.beginPath();
  context.moveTo(x, box.top);
  context.lineTo(x, box.top + box.height);
  context.stroke();
  context.setLineDash([]);
  const left = x > box.left + box.width / 2;
  context.textAlign = left ? "right" : "left";
  context.textBaseline = "top";
  context.fillText(text, x + (left ? -6 : 6), box.top + (dashed ? 2 : 18));
}

/** Describe the source of the counts. */
function describeSource({ source, sampleSize: looked }: CountedHistogram): string {
  if (source === "sample") return `estimated from ${formatInteger(looked ?? 0)} numbers, spread evenly`;
  return { exact: "every number counted", columns: "whole columns of a job", none: "being computed" }[source];
}

export function HistogramView() {
  const range = countedRange();
  useEffect(() => requestValues(range), [String(range.first), String(range.end)]);
  const data = countVisible();
  const figures = summarize(data.histogram);
  const words = figures
    ? `Steps of ${formatInteger(figures.count)} numbers from ${formatInteger(data.range.first)} to ` +
      `${formatInteger(data.range.end - 1n)}: mean ${figures.mean.toFixed(2)}, ` +
      `deviation ${figures.deviation.toFixed(2)}, median ${figures.median}, ${figures.min} to ${figures.max}`
    : "No number of this range is known yet";
  const canvas = usePicture(
    "histogram",
    "Collatz: how many numbers take how many steps",
    `${words}; ${describeSource(data)}.`,
    (context, width, height) => figures && draw(context, width, height, data, figures),
  );
  const twin = () => ({
    head: ["steps", "numbers"],
    rows: [...data.histogram]
      .sort(([left], [right]) => left - right)
      .map(([steps, count]) => [steps, formatInteger(count)]),
  });
  return (
    <div class="stack">
      <Figure summary={`${words}.`} getTable={twin}>
        <div class="plot-space">
          {figures ? <Canvas canvasRef={canvas} summary={`${words}.`} class="fill" /> : <NoHistogram />}
        </div>
      </Figure>
      <p class="small">
        {words}; {describeSource(data)}.{" "}
        <span class="soft">
          The line is the log-normal with this mean and deviation; the random model expects a mean of{" "}
          {expectedMean(data.range.first, data.range.end).toFixed(1)}.
        </span>
      </p>
      {figures && <Classes histogram={data.histogram} total={figures.count} />}
      <div class="row">
        <CheckboxField name="logcounts">log counts</CheckboxField>
        <Button disabled={!figures} onClick={() => saveHistogram(data)}>
          CSV of the histogram
        </Button>
        <Button onClick={() => void saveNumbers()}>CSV of the numbers</Button>
        {selection.value && <Button onClick={() => selectRange(undefined)}>Clear the selection</Button>}
      </div>
    </div>
  );
}

function NoHistogram() {
  return (
    <div class="empty" aria-busy="true">
      <h3>Being computed in this page</h3>
    </div>
  );
}

/** Numbers of short, medium and long trajectories. */
function Classes({ histogram, total }: { histogram: ReadonlyMap<number, number>; total: number }) {
  const counts = countClasses(histogram);
  return (
    <ul class="classes">
      {LENGTH_CLASSES.map(({ name }, index) => (
        <li key={name}>
          <ClassMark index={index} /> {name} steps <span class="num">{formatInteger(counts[index] ?? 0)}</span>{" "}
          <span class="soft num">{formatPercent((counts[index] ?? 0) / total)}</span>
        </li>
      ))}
    </ul>
  );
}
