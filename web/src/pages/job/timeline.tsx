/** Timeline of a job: one row per lane, and one bar per continuous period of work. */

import { useSignal } from "@preact/signals";
import type { Job } from "../../lib/api";
import { formatClock, formatCount, formatInteger, formatSeconds } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas, type Draw } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { timeTicks } from "../../ui/scale";
import { useTimeline, type JobSpan, type Timeline as Lanes } from "./model/timeline";

/** Maximum number of drawn lanes; the table contains all. */
const MAX_LANES = 24;
const ROW_HEIGHT = 18;
const MARGIN = { left: 132, right: 8, bottom: 20 };

export function Timeline({ job }: { job: Job }) {
  const timeline = useTimeline(job);
  return timeline ? <TimelineFigure timeline={timeline} /> : null;
}

function describeSpan({ start, end, open, units, lost }: JobSpan): string {
  const until = open ? "now" : formatClock(end * 1000);
  const what = lost ? "its worker was lost" : units ? formatCount(Number(units), "unit") : "";
  return `${formatClock(start * 1000)} to ${until}, ${formatSeconds(end - start)}${what && `, ${what}`}`;
}

function TimelineFigure({ timeline }: { timeline: Lanes }) {
  const hovered = useSignal("");
  const rows = timeline.lanes.slice(0, MAX_LANES);
  const paint: Draw = (context, width) => draw(context, width, timeline);
  const canvas = useCanvas(paint);
  const count = timeline.lanes.reduce((sum, row) => sum + row.spans.length, 0);
  const summary =
    `${formatCount(count, "period")} of work on ${formatCount(timeline.lanes.length, "lane")}, ` +
    `${formatSeconds(timeline.to - timeline.from)} from ${formatClock(timeline.from * 1000)}.`;
  const find = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = rows[Math.floor((event.clientY - box.top) / ROW_HEIGHT)];
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const time = timeline.from + share * (timeline.to - timeline.from);
    const span = row?.spans.find((each) => time >= each.start && time <= each.end);
    hovered.value = row && span ? `${row.lane}: ${describeSpan(span)}` : "";
  };
  return (
    <Figure
      title="Timeline"
      summary={summary}
      getTable={() => ({
        head: ["lane", "from", "to", "seconds", "units", "leases"],
        rows: timeline.lanes.flatMap(({ lane, spans }) =>
          spans.map((span) => [
            lane,
            formatClock(span.start * 1000),
            span.open ? "now" : formatClock(span.end * 1000),
            formatSeconds(span.end - span.start),
            span.lost ? "lost" : formatInteger(span.units ?? 0),
            formatInteger(span.leases),
          ]),
        ),
      })}
      picture={{ title: "Timeline", draw: paint }}
    >
      <div
        style={{ height: `${rows.length * ROW_HEIGHT + MARGIN.bottom}px` }}
        onMouseMove={find}
        onMouseLeave={() => (hovered.value = "")}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {hovered.value || summary}
        {timeline.lanes.length > rows.length && ` The first ${MAX_LANES} lanes are shown.`}
      </p>
    </Figure>
  );
}

function draw(context: CanvasRenderingContext2D, width: number, { from, to, lanes }: Lanes): void {
  const rows = lanes.slice(0, MAX_LANES);
  const bottom = rows.length * ROW_HEIGHT;
  const plotWidth = width - MARGIN.left - MARGIN.right;
  const x = (time: number) => MARGIN.left + ((time - from) / (to - from)) * plotWidth;
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  context.strokeStyle = token("line");
  context.fillStyle = token("ink-soft");
  context.textAlign = "center";
  for (const tick of timeTicks(from, to, plotWidth / 80)) {
    const at = Math.round(x(tick)) + 0.5;
    context.strokeRect(at, 0, 0, bottom + 3);
    context.fillText(formatClock(tick * 1000), Math.min(at, width - 30), bottom + 15);
  }
  for (const [index, row] of rows.entries()) {
    const top = index * ROW_HEIGHT + 2;
    context.textAlign = "right";
    context.fillStyle = token("ink-soft");
    context.fillText(row.lane, MARGIN.left - 8, top + 12, MARGIN.left - 12);
    for (const span of row.spans) {
      context.fillStyle = token(span.lost ? "bad" : "series-1");
      context.fillRect(x(span.start), top, Math.max(1.5, x(span.end) - x(span.start) - 0.5), ROW_HEIGHT - 4);
    }
  }
}
