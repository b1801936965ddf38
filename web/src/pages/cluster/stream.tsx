/** The worker stream: which lane computed what in the last ten minutes, and what it computes now. */

import { computed, signal, useSignal } from "@preact/signals";
import { get, type Span, type Stream } from "../../lib/api";
import { clock, compact, percent, seconds } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { now } from "../../ui/page";
import { Empty, Skeleton } from "../../ui/table";
import { usePolled } from "./model/polled";
import { busy, edges, kindsOf, laneHeight, spanAt, xOf, type Frame } from "./model/spans";
import { open, paused } from "./model/state";
import { Trouble } from "../../ui/trouble";

const SECONDS = 600;
const REFRESH_SECONDS = 3;
const AXIS = 20;
const TICKS = [0, 120, 240, 360, 480, 600];

/** ms by which this machine's clock is before the cluster's. */
const skew = signal(0);

async function ask(control: AbortSignal): Promise<Stream> {
  const stream = await get<Stream>("/api/stream", { seconds: SECONDS }, control);
  skew.value = stream.to * 1000 - Date.now();
  return stream;
}

export function WorkerStream() {
  const polled = usePolled("stream", REFRESH_SECONDS, ask);
  const held = useSignal<{ stream: Stream; to: number } | undefined>(undefined);
  const { value, problem } = polled.value;
  if (!value) return problem ? <Trouble what="worker stream" problem={problem} /> : <Skeleton rows={4} />;
  if (paused.value && !held.peek()) held.value = { stream: value, to: cluster.peek() };
  if (!paused.value && held.peek()) held.value = undefined;
  const shown = held.value;
  return <Lanes stream={shown?.stream ?? value} until={shown?.to} />;
}

/** The cluster's clock, in seconds since 1970. */
const cluster = computed(() => (now.value + skew.value) / 1000);

function frameOf(stream: Stream, width: number, to: number): Frame {
  const left = width < 480 ? 72 : 132;
  return {
    left,
    top: 0,
    width: Math.max(1, width - left - 8),
    lane: laneHeight(stream.lanes.length),
    from: to - SECONDS,
    to,
  };
}

function describe(stream: Stream, span: Span, to: number): string {
  const lane = stream.lanes[span.lane]?.lane ?? "";
  const end = span.open ? to : span.end;
  const what = span.job_id ? `job ${span.job_id}` : `${compact(span.jobs)} jobs`;
  const units = span.open ? "computing now" : span.lost ? "its worker was lost" : `${compact(span.units)} units`;
  return (
    `${lane}: ${span.type ?? "several kinds"}, ${what}, ${clock(span.start * 1000)} to ` +
    `${span.open ? "now" : clock(end * 1000)}, ${seconds(end - span.start)}, ${units}`
  );
}

function Lanes({ stream, until }: { stream: Stream; until: number | undefined }) {
  const hovered = useSignal<Span | undefined>(undefined);
  const kinds = kindsOf(stream);
  const end = () => until ?? cluster.value;
  const canvas = useCanvas((context, width) => draw(context, width, stream, kinds, end()));
  if (!stream.lanes.length) return <NoLanes />;
  const to = until ?? stream.to;
  const shares = busy(stream, to - SECONDS, to);
  const mean = shares.reduce((sum, each) => sum + each, 0) / shares.length;
  const summary =
    `Worker stream of the last 10 minutes: ${stream.lanes.length} lanes, ${percent(mean)} of their ` +
    `time computing; ${stream.spans.filter((span) => span.open).length} compute now.`;
  const twin = () => ({
    head: ["lane", "kind", "job", "from", "to", "seconds", "units"],
    rows: stream.spans
      .toReversed()
      .map((span) => [
        stream.lanes[span.lane]?.lane ?? "",
        span.type ?? "several",
        span.job_id ?? `${span.jobs} jobs`,
        clock(span.start * 1000),
        span.open ? "now" : clock(span.end * 1000),
        seconds((span.open ? to : span.end) - span.start),
        span.lost ? "lost" : compact(span.units),
      ]),
  });
  const find = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return spanAt(stream, event.clientX - box.left, event.clientY - box.top, frameOf(stream, box.width, end()));
  };
  const height = stream.lanes.length * laneHeight(stream.lanes.length) + AXIS;
  return (
    <Figure
      title="Worker stream"
      summary={summary}
      twin={twin}
      note={<Key stream={stream} kinds={kinds} mean={mean} />}
    >
      <div
        class="lanes"
        style={{ height: `${height}px` }}
        onMouseMove={(event) => (hovered.value = find(event))}
        onMouseLeave={() => (hovered.value = undefined)}
        onClick={(event) => ((span) => span?.job_id && open(span.job_id))(find(event))}
        data-hit={hovered.value?.job_id ? "true" : undefined}
      >
        <Canvas at={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {hovered.value
          ? describe(stream, hovered.value, to)
          : "Point at a piece of work to see what it was; a click opens its job."}
      </p>
    </Figure>
  );
}

function NoLanes() {
  return (
    <Empty title="No worker has computed anything in the last 10 minutes">
      <p>
        Here each lane of each worker gets a line, and each piece of work a bar on it. Press <kbd>n</kbd> for a new job.
      </p>
    </Empty>
  );
}

function Key({ stream, kinds, mean }: { stream: Stream; kinds: readonly string[]; mean: number }) {
  return (
    <ul class="legend">
      <li>
        <span class="num">{percent(mean)}</span> busy
      </li>
      {kinds.map((kind, place) => (
        <li key={kind}>
          <svg viewBox="0 0 18 8" aria-hidden="true">
            <rect width="18" height="8" fill={`var(--series-${(place % 8) + 1})`} />
            {place % 2 === 1 && <path d="M0 8l8-8M6 8l8-8M12 8l6-6" stroke="var(--bg)" stroke-width="1.5" />}
          </svg>
          {kind}
        </li>
      ))}
      {stream.resolution_seconds > 0 && <li>pieces within {seconds(stream.resolution_seconds)} are joined</li>}
      {stream.complete_since > stream.to - SECONDS && <li>complete since {clock(stream.complete_since * 1000)}</li>}
    </ul>
  );
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  stream: Stream,
  kinds: readonly string[],
  to: number,
): void {
  const frame = frameOf(stream, width, to);
  const height = stream.lanes.length * frame.lane;
  drawAxis(context, frame, height);
  drawNames(context, frame, stream);
  const gap = frame.lane > 8 ? 2 : 1;
  for (const span of stream.spans) {
    const extent = edges(span, frame);
    if (!extent) continue;
    const place = kinds.indexOf(span.type ?? "several kinds");
    const box: [number, number, number, number] = [
      extent[0],
      span.lane * frame.lane + gap / 2,
      extent[1] - extent[0],
      frame.lane - gap,
    ];
    context.fillStyle = token(`series-${(place % 8) + 1}`);
    context.fillRect(...box);
    if (place % 2 === 1) hatch(context, box);
  }
}

/** A second way to tell kinds apart. */
function hatch(context: CanvasRenderingContext2D, [x, y, width, height]: [number, number, number, number]): void {
  if (width < 3 || height < 4) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = token("bg");
  context.beginPath();
  // From a grid of the page, so that the pattern does not crawl with the bars.
  for (let at = Math.floor((x - height) / 6) * 6; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function drawAxis(context: CanvasRenderingContext2D, frame: Frame, height: number): void {
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  const few = frame.width < 420;
  for (const ago of TICKS) {
    if (few && ago % 300) continue;
    const x = Math.round(xOf(frame.to - ago, frame)) + 0.5;
    context.strokeStyle = token("line");
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height + 4);
    context.stroke();
    context.fillStyle = token("ink-soft");
    context.textAlign = ago === 0 ? "right" : ago === 600 ? "left" : "center";
    context.fillText(ago ? `${ago / 60} min ago` : "now", x, height + 16);
  }
}

function drawNames(context: CanvasRenderingContext2D, frame: Frame, stream: Stream): void {
  context.font = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const most = Math.floor((frame.left - 12) / 7.3);
  const every = Math.max(1, Math.ceil(14 / frame.lane));
  for (const [place, { lane }] of stream.lanes.entries()) {
    context.fillStyle = token("line");
    context.fillRect(frame.left, (place + 1) * frame.lane - 0.5, frame.width, 0.5);
    if (place % every) continue;
    context.fillStyle = token("ink-soft");
    context.fillText(
      lane.length > most ? `…${lane.slice(1 - most)}` : lane,
      frame.left - 6,
      (place + 0.5) * frame.lane,
    );
  }
}
