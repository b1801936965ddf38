/** Line charts over time. Charts with the same `sync` share their cursor. */

import { signal, type Signal } from "@preact/signals";
import { formatClock, formatCompact } from "../lib/format";
import { token } from "../lib/theme";
import { useCanvas, type Draw } from "./canvas";
import { Canvas, Figure } from "./figure";
import { indexAt, timeTicks, roundUp } from "./scale";

export interface Series {
  label: string;
  /** null: unknown. */
  values: readonly (number | null)[];
  /** Bounds of each bin for the band around the line. */
  low?: readonly (number | null)[];
  high?: readonly (number | null)[];
  /** Color number 1 to 8; by default the index. */
  color?: number;
}

export interface ChartProps {
  title: string;
  /** Times in seconds since 1970, ascending. */
  times: readonly number[];
  series: readonly Series[];
  format?: (value: number) => string;
  /** Minimum upper end of the y axis, such as 1 for shares. */
  minTop?: number;
  /** True for bytes; the axis then ends at round binary units. */
  isBinary?: boolean;
  /** Charts with the same name share their cursor. */
  sync?: string;
  height?: number;
  /** Unit after the names in the table's header. */
  unit?: string;
}

const DASHES: readonly (readonly number[])[] = [
  [],
  [6, 3],
  [2, 2],
  [8, 3, 2, 3],
  [12, 4],
  [1, 3],
  [4, 2, 1, 2],
  [3, 6],
];
const MARGIN = { left: 76, right: 8, top: 6, bottom: 20 };
const FONT = "12px system-ui, sans-serif";

/** Time under the cursor by chart group; 0 for none. */
const cursors = new Map<string, Signal<number>>();

function getCursor(sync: string): Signal<number> {
  const cursor = cursors.get(sync) ?? signal(0);
  cursors.set(sync, cursor);
  return cursor;
}

function lastValue(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function formatKnown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "not known" : format(value);
}

/** Describe the chart in words. */
export function describeChart({ title, series, times, format = formatCompact }: ChartProps): string {
  const parts = series.map((each) => {
    const now = lastValue(each.values);
    if (now === null) return `${each.label} not known`;
    const max = each.values.reduce<number>((high, value) => Math.max(high, value ?? -Infinity), -Infinity);
    return `${each.label} ${format(now)}, at most ${format(max)}`;
  });
  const from = times[0];
  return `${title}${from === undefined ? "" : ` since ${formatClock(from * 1000)}`}: ${parts.join("; ") || "no data"}.`;
}

export function Chart(props: ChartProps) {
  const { title, times, series, format = formatCompact, sync = title, height = 120, unit = "" } = props;
  const summary = describeChart(props);
  const cursor = getCursor(sync);
  const paint: Draw = (context, width, canvasHeight) => draw(context, width, canvasHeight, props, cursor.value);
  const canvas = useCanvas(paint);
  const move = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const [first = 0, final = 0] = [times[0], times.at(-1)];
    cursor.value = share >= 0 && share <= 1 ? first + share * (final - first) : 0;
  };
  const at = cursor.value ? indexAt(times, cursor.value) : -1;
  const getTable = () => ({
    head: ["time", ...series.map((each) => each.label + (unit && `, ${unit}`))],
    rows: times
      .map((time, row) => [formatClock(time * 1000), ...series.map((each) => formatKnown(each.values[row], format))])
      .toReversed(),
  });
  return (
    <Figure
      title={title}
      summary={summary}
      getTable={getTable}
      note={<Legend series={series} at={at} time={times[at]} format={format} />}
      picture={{ title, draw: paint }}
    >
      <div
        class="plot"
        style={{ height: `${height}px` }}
        onPointerMove={move}
        onPointerDown={move}
        onPointerLeave={() => (cursor.value = 0)}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
    </Figure>
  );
}

interface LegendProps {
  series: readonly Series[];
  at: number;
  time: number | undefined;
  format: (value: number) => string;
}

function dashIndex(series: Series, index: number): number {
  return ((series.color ?? index + 1) - 1) % DASHES.length;
}

/** Each line's dash, name, and value now or at the cursor. */
function Legend({ series, at, time, format }: LegendProps) {
  return (
    <ul class="legend">
      {time !== undefined && <li class="num">{formatClock(time * 1000)}</li>}
      {series.map((each, index) => (
        <li key={each.label}>
          {series.length > 1 && <Dash index={dashIndex(each, index)} />}
          {series.length > 1 && each.label}
          <span class="num">{formatKnown(time === undefined ? lastValue(each.values) : each.values[at], format)}</span>
        </li>
      ))}
      {series.length === 0 && <li>no data</li>}
    </ul>
  );
}

function Dash({ index: of }: { index: number }) {
  return (
    <svg viewBox="0 0 18 8" aria-hidden="true">
      <path
        d="M0 4h18"
        stroke={`var(--series-${of + 1})`}
        stroke-width="2"
        stroke-dasharray={DASHES[of]?.join(" ")}
        fill="none"
      />
    </svg>
  );
}

// -- drawing --------------------------------------------------------------------------------------------------------

interface ChartScale {
  x: (time: number) => number;
  y: (value: number) => number;
  width: number;
  height: number;
  max: number;
}

function createScale(
  width: number,
  height: number,
  { times, series, minTop: min = 0, isBinary: binary = false }: ChartProps,
): ChartScale {
  const values = series.flatMap((each) => [...each.values, ...(each.high ?? [])]);
  const max = roundUp(
    Math.max(
      min,
      values.reduce<number>((high, value) => Math.max(high, value ?? 0), 0),
    ),
    binary,
  );
  const [first = 0, final = 1] = [times[0], times.at(-1)];
  const [wide, tall] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  return {
    x: (time) => MARGIN.left + ((time - first) / Math.max(1e-9, final - first)) * wide,
    y: (value) => MARGIN.top + tall * (1 - value / max),
    width,
    height,
    max,
  };
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  props: ChartProps,
  cursor: number,
): void {
  const plane = createScale(width, height, props);
  context.font = FONT;
  drawAxes(context, plane, props);
  for (const [index, each] of props.series.entries()) {
    const of = dashIndex(each, index);
    const color = token(`series-${of + 1}`);
    drawBand(context, plane, props.times, each, color);
    drawLine(context, plane, props.times, each.values, color, DASHES[of] ?? []);
  }
  if (cursor) drawCursor(context, plane, props, cursor);
}

function drawAxes(
  context: CanvasRenderingContext2D,
  plane: ChartScale,
  { times, format = formatCompact }: ChartProps,
): void {
  context.strokeStyle = token("line");
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const value of [0, plane.max / 2, plane.max]) {
    const y = Math.round(plane.y(value)) + 0.5;
    context.strokeRect(MARGIN.left, y, plane.width - MARGIN.left - MARGIN.right, 0);
    if (value !== plane.max / 2 || plane.height > 80) context.fillText(format(value), MARGIN.left - 6, y);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "center";
  const [first, final] = [times[0], times.at(-1)];
  if (first === undefined || final === undefined) return;
  const labeledTimes = timeTicks(first, final, (plane.width - MARGIN.left) / 70);
  const length = labeledTimes.some((tick) => tick % 60) ? 8 : 5; // include seconds if minutes alone would be ambiguous
  for (const tick of labeledTimes) {
    const x = Math.round(plane.x(tick)) + 0.5;
    context.strokeRect(x, MARGIN.top, 0, plane.height - MARGIN.top - MARGIN.bottom + 3);
    if (x > MARGIN.left + 14 && x < plane.width - 18)
      context.fillText(formatClock(tick * 1000).slice(0, length), x, plane.height - 4);
  }
}

function drawLine(
  context: CanvasRenderingContext2D,
  { x, y }: ChartScale,
  times: readonly number[],
  values: readonly (number | null)[],
  color: string,
  dash: readonly number[],
): void {
  context.beginPath();
  let on = false;
  for (const [index, time] of times.entries()) {
    const value = values[index];
    if (value === null || value === undefined) {
      on = false; // keep gaps in the line
    } else if (on) {
      context.lineTo(x(time), y(value));
    } else {
      on = true;
      context.moveTo(x(time), y(value));
      context.lineTo(x(time) + 1, y(value));
    }
  }
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.setLineDash([...dash]);
  context.stroke();
  context.setLineDash([]);
  context.lineWidth = 1;
}

/** Draw the band between the minimum and maximum of each bin. */
function drawBand(
  context: CanvasRenderingContext2D,
  { x, y }: ChartScale,
  times: readonly number[],
  { low, high }: Series,
  color: string,
): void {
  if (!low || !high || times.length < 2) return;
  const step = x(times[1] as number) - x(times[0] as number);
  context.globalAlpha = 0.2;
  context.fillStyle = color;
  for (const [index, time] of times.entries()) {
    const [under, over] = [low[index], high[index]];
    if (under === null || under === undefined || over === null || over === undefined) continue;
    context.fillRect(x(time) - step / 2, y(over), step, y(under) - y(over));
  }
  context.globalAlpha = 1;
}

function drawCursor(
  context: CanvasRenderingContext2D,
  { x, y, height }: ChartScale,
  { times, series }: ChartProps,
  cursor: number,
): void {
  const at = indexAt(times, cursor);
  const time = times[at];
  if (time === undefined) return;
  context.strokeStyle = token("ink-soft");
  context.strokeRect(Math.round(x(time)) + 0.5, MARGIN.top, 0, height - MARGIN.top - MARGIN.bottom);
  for (const [index, each] of series.entries()) {
    const value = each.values[at];
    if (value === null || value === undefined) continue;
    context.fillStyle = token(`series-${dashIndex(each, index) + 1}`);
    context.fillRect(x(time) - 2.5, y(value) - 2.5, 5, 5);
  }
}
