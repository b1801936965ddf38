/** Chart of a sweep: speedup over cores, one line per scheduler, with links to the cells. */

import { useSignal } from "@preact/signals";
import { token } from "../../lib/theme";
import { viewTicks } from "../../timeline/view";
import { useCanvas, type Draw } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { agesClass, cell, run, showCell } from "./model/state";
import {
  spreadLabels,
  describeBest,
  createLines,
  nearestCell,
  coresToX,
  speedupToY,
  type Line,
  type SweepScale,
} from "./model/sweep";

const CHART_HEIGHT = 190;
const MARGIN = { left: 44, right: 116, top: 14, bottom: 34 };
/** Distance in pixels at which the pointer selects a point. */
const REACH = 28;
const DASHES: readonly (readonly number[])[] = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

function formatBrief(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function schedulerName(scheduler: string): string {
  return scheduler.replaceAll("_", " ");
}

function createScale(width: number, height: number, lines: readonly Line[]): SweepScale {
  const points = lines.flatMap((line) => line.points);
  const cores = Math.max(...points.map((point) => point.cores));
  return {
    left: MARGIN.left,
    top: MARGIN.top,
    width: Math.max(1, width - MARGIN.left - MARGIN.right),
    height: height - MARGIN.top - MARGIN.bottom,
    cores: cores * 1.04,
    speedup: 1.08 * Math.max(...points.map((point) => point.high)),
  };
}

export function Sweep() {
  const lines = createLines(run.result.value?.cells ?? []);
  const level = Number(run.result.value?.parameters.confidence ?? 0.95);
  const under = useSignal<number | undefined>(undefined);
  const currentCell = cell.value?.cell;
  const paint: Draw = (context, width, height) =>
    draw(context, createScale(width, height, lines), lines, under.value ?? currentCell);
  const canvas = useCanvas(paint);
  if (!lines.length) return null;
  const summary =
    `Speedup over cores, ${lines.map((line) => schedulerName(line.scheduler)).join(", ")}. ${describeBest(lines)}. ` +
    `The select named cell opens each of them.`;
  const at = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const plane = createScale(box.width, box.height, lines);
    return nearestCell(plane, lines, event.clientX - box.left, event.clientY - box.top, REACH);
  };
  const open = (found: number | undefined) => found !== undefined && showCell(found);
  const twin = () => ({
    head: ["scheduler", "cores", "speedup", "from", "to"],
    rows: lines.flatMap(({ scheduler, points }) =>
      points.map((point) => [
        schedulerName(scheduler),
        point.cores,
        formatBrief(point.mean),
        formatBrief(point.low),
        formatBrief(point.high),
      ]),
    ),
  });
  return (
    <Figure
      title="Speedup over cores"
      note={
        <span class="small soft">
          {describeBest(lines)}; bands: {formatBrief(100 * level)}
          {"\u202f"}% intervals. Click a point for its runs.
        </span>
      }
      summary={summary}
      getTable={twin}
      picture={{ title: "Speedup over cores", draw: paint }}
      class={`sweep ${agesClass.value}`}
    >
      <div
        style={{ height: `${CHART_HEIGHT}px`, cursor: under.value === undefined ? "default" : "pointer" }}
        onMouseMove={(event) => (under.value = at(event))}
        onMouseLeave={() => (under.value = undefined)}
        onClick={(event) => open(at(event))}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
    </Figure>
  );
}

type Context = CanvasRenderingContext2D;

function draw(context: Context, plane: SweepScale, lines: readonly Line[], marked: number | undefined): void {
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  drawAxes(context, plane, lines);
  drawIdeal(context, plane);
  for (const [position, line] of lines.entries()) drawBand(context, plane, line, token(`series-${position + 1}`));
  for (const [position, line] of lines.entries())
    drawCurve(context, plane, line, token(`series-${position + 1}`), DASHES[position] ?? []);
  drawLabels(context, plane, lines);
  for (const [position, { points }] of lines.entries())
    for (const point of points.filter((each) => each.cell === marked)) drawRing(context, plane, point, position);
}

function drawAxes(context: Context, plane: SweepScale, lines: readonly Line[]): void {
  const { left, top: high, width: wide, height: tall, speedup } = plane;
  context.strokeStyle = token("line");
  context.lineWidth = 1;
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const value of viewTicks({ t0: 0, t1: speedup }, 5).at) {
    const y = Math.round(speedupToY(plane, value)) + 0.5;
    context.strokeRect(left, y, wide, 0);
    context.fillText(formatBrief(value), left - 6, y);
  }
  context.textAlign = "center";
  let free = Number.NEGATIVE_INFINITY;
  for (const cores of [...new Set(lines.flatMap((line) => line.points.map((point) => point.cores)))].sort(
    (a, b) => a - b,
  )) {
    const x = Math.round(coresToX(plane, cores)) + 0.5;
    context.strokeRect(x, high, 0, tall + 4);
    if (x < free) continue;
    context.fillText(String(cores), x, high + tall + 12);
    free = x + 15;
  }
  context.textAlign = "right";
  context.fillText("cores", left + wide, high + tall + 26);
}

/** Draw the ideal linear speedup. */
function drawIdeal(context: Context, plane: SweepScale): void {
  const max = Math.min(plane.cores, plane.speedup);
  const [x, y] = [coresToX(plane, max), speedupToY(plane, max)];
  context.strokeStyle = token("ink-soft");
  context.lineWidth = 1;
  context.setLineDash([2, 4]);
  context.beginPath();
  context.moveTo(coresToX(plane, 0), speedupToY(plane, 0));
  context.lineTo(x, y);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = token("ink-soft");
  context.textAlign = "right";
  context.fillText("ideal", x - 8, y + 6);
}

function drawBand(context: Context, plane: SweepScale, { points }: Line, ink: string): void {
  context.globalAlpha = 0.2;
  context.fillStyle = ink;
  context.beginPath();
  for (const { cores, high } of points) context.lineTo(coresToX(plane, cores), speedupToY(plane, high));
  for (const { cores, low } of points.toReversed()) context.lineTo(coresToX(plane, cores), speedupToY(plane, low));
  context.fill();
  context.globalAlpha = 1;
}

function drawCurve(context: Context, plane: SweepScale, { points }: Line, ink: string, dash: readonly number[]): void {
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = 2;
  context.setLineDash([...dash]);
  context.beginPath();
  for (const { cores, mean } of points) context.lineTo(coresToX(plane, cores), speedupToY(plane, mean));
  context.stroke();
  context.setLineDash([]);
  for (const { cores, mean } of points) {
    context.beginPath();
    context.arc(coresToX(plane, cores), speedupToY(plane, mean), 3, 0, 7);
    context.fill();
  }
}

function drawLabels(context: Context, plane: SweepScale, lines: readonly Line[]): void {
  const ends = lines.map(({ points }) => points.at(-1));
  const desired = ends.map((end) => speedupToY(plane, end?.mean ?? 0));
  const places = spreadLabels(desired, 15, plane.top + plane.height - 6);
  context.textAlign = "left";
  for (const [position, { scheduler }] of lines.entries()) {
    context.fillStyle = token(`series-${position + 1}`);
    context.fillText(
      schedulerName(scheduler),
      coresToX(plane, ends[position]?.cores ?? 0) + 10,
      places[position] as number,
    );
  }
}

function drawRing(
  context: Context,
  plane: SweepScale,
  { cores, mean }: { cores: number; mean: number },
  position: number,
): void {
  context.beginPath();
  context.arc(coresToX(plane, cores), speedupToY(plane, mean), 6, 0, 7);
  context.fillStyle = token("bg");
  context.fill();
  context.strokeStyle = token(`series-${position + 1}`);
  context.lineWidth = 3;
  context.stroke();
}
