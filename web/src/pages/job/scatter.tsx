/** Scatter chart of two columns; a click on a point opens its unit. */

import { useSignal } from "@preact/signals";
import { formatInteger } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas, type Draw } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { nearestPoint, numberTicks, rangeOf } from "./model/scatter";
import { openUnit } from "./model/state";
import { formatNumber } from "./model/values";

interface ScatterProps {
  title: string;
  xName: string;
  yName: string;
  units: readonly number[];
  xs: readonly (number | null)[];
  ys: readonly (number | null)[];
}

const HEIGHT = 240;
const MARGIN = { left: 64, right: 12, top: 8, bottom: 36 };
/** Maximum distance in pixels between the pointer and a point. */
const MAX_DISTANCE = 12;

export function Scatter(props: ScatterProps) {
  const { title, xName, yName, units, xs, ys } = props;
  const picked = useSignal<number | undefined>(undefined);
  const paint: Draw = (context, width, height) => draw(context, width, height, props, picked.value);
  const canvas = useCanvas(paint);
  const rows = units.map((unit, row) => [unit, xs[row] ?? null, ys[row] ?? null] as const);
  const known = rows.filter(([, x, y]) => x !== null && y !== null);
  const summary = `${title}: ${formatInteger(known.length)} units.`;
  const find = (event: MouseEvent) => {
    const { left, top, width, height } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const scale = createScale(width, height, props);
    const points = xs.map((x, row) => scale.place(x, ys[row] ?? null));
    return nearestPoint(points, event.clientX - left, event.clientY - top, MAX_DISTANCE);
  };
  const at = picked.value;
  return (
    <Figure
      title={title}
      summary={summary}
      getTable={() => ({
        head: xName === "unit" ? ["unit", yName] : ["unit", xName, yName],
        rows: known.map(([unit, x, y]) => (xName === "unit" ? [unit, y as number] : [unit, x as number, y as number])),
      })}
      picture={{ title, draw: paint }}
    >
      <div
        class="scatter"
        style={{ height: `${HEIGHT}px` }}
        onMouseMove={(event) => (picked.value = find(event))}
        onMouseLeave={() => (picked.value = undefined)}
        onClick={(event) => ((row) => row !== undefined && openUnit(units[row] as number))(find(event))}
        data-hit={at === undefined ? undefined : "true"}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {at === undefined
          ? "Click a point to open its unit."
          : `Unit ${formatInteger(units[at])}: ${describe(xName, xs[at])}${describe(yName, ys[at])}`}
      </p>
    </Figure>
  );
}

/** Describe a value; the horizontal unit number is not repeated. */
function describe(name: string, value: number | null | undefined): string {
  return name === "unit" || value === null || value === undefined ? "" : `${name} ${formatNumber(value)} `;
}

interface ScatterScale {
  x: (value: number) => number;
  y: (value: number) => number;
  place: (x: number | null, y: number | null) => [number, number] | undefined;
}

function createScale(width: number, height: number, { xs, ys }: ScatterProps): ScatterScale {
  const [left, right] = rangeOf(xs);
  const [low, high] = rangeOf(ys);
  const x = (value: number) => MARGIN.left + ((value - left) / (right - left)) * (width - MARGIN.left - MARGIN.right);
  const y = (value: number) =>
    height - MARGIN.bottom - ((value - low) / (high - low)) * (height - MARGIN.top - MARGIN.bottom);
  return { x, y, place: (across, up) => (across === null || up === null ? undefined : [x(across), y(up)]) };
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  props: ScatterProps,
  picked: number | undefined,
): void {
  const { x, y, place } = createScale(width, height, props);
  const bottom = height - MARGIN.bottom;
  context.font = "12px system-ui, sans-serif";
  context.strokeStyle = token("line");
  context.fillStyle = token("ink-soft");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const tick of numberTicks(...rangeOf(props.ys), 4)) {
    const at = Math.round(y(tick)) + 0.5;
    context.strokeRect(MARGIN.left, at, width - MARGIN.left - MARGIN.right, 0);
    context.fillText(formatNumber(tick), MARGIN.left - 6, at);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "center";
  for (const tick of numberTicks(...rangeOf(props.xs), 5)) {
    const at = Math.round(x(tick)) + 0.5;
    context.strokeRect(at, MARGIN.top, 0, bottom - MARGIN.top + 3);
    context.fillText(formatNumber(tick), at, bottom + 15);
  }
  context.fillText(props.xName, (MARGIN.left + width) / 2, height - 4);
  context.fillStyle = token("series-1");
  context.globalAlpha = props.xs.length > 1000 ? 0.4 : 0.8;
  for (const [row, across] of props.xs.entries()) {
    const point = place(across, props.ys[row] ?? null);
    if (point) context.fillRect(point[0] - 2, point[1] - 2, 4, 4);
  }
  context.globalAlpha = 1;
  const point = picked === undefined ? undefined : place(props.xs[picked] ?? null, props.ys[picked] ?? null);
  if (!point) return;
  context.strokeStyle = token("ink");
  context.strokeRect(point[0] - 4, point[1] - 4, 8, 8);
}
