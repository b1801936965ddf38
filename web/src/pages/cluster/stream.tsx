/** The worker stream: jobs on each lane during the last ten minutes. */

import { computed, signal, useSignal } from "@preact/signals";
import { jobAddress } from "../../kinds";
import { get, type Span, type Stream, type Worker } from "../../lib/api";
import { formatAmount, formatClock, formatCompact, formatCount, formatPercent, formatSeconds } from "../../lib/format";
import { age } from "../../lib/live";
import { shortenMiddle } from "../../lib/naming";
import { token } from "../../lib/theme";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { now } from "../../ui/page";
import { EmptyMessage, LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { jobColor, assignColors } from "./model/colors";
import { knownJobTitle } from "./model/names";
import { usePolling } from "./model/polling";
import {
  busyShares,
  spanEdges,
  laneKnownUntil,
  laneHeight,
  findRuns,
  foldSmallJobs,
  spanAt,
  HIDDEN_WORK,
  sumWork,
  timeToX,
  type Frame,
  type Run,
} from "./model/spans";
import { fleet, isPaused } from "./model/state";
import { Swatch } from "./swatch";

const STREAM_SECONDS = 600;
const REFRESH_SECONDS = 3;
const AXIS_HEIGHT = 20;
const TICKS = [0, 120, 240, 360, 480, 600];
/** Hint how to open a job; touch screens have no hover. */
const POINTER_HINT = matchMedia("(hover: none)").matches
  ? "tap a bar to open the job"
  : "point at a bar for details, click it to open the job";
/** Maximum number of jobs named below the picture. */
const MAX_NAMED = 6;
const SANS_FONT = "12px system-ui, sans-serif";
const MONO_FONT = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

/** Milliseconds by which this machine's clock is behind the cluster's. */
const clockOffsetMs = signal(0);

async function loadStream(control: AbortSignal): Promise<Stream> {
  const stream = foldSmallJobs(await get<Stream>("/api/stream", { seconds: STREAM_SECONDS }, control));
  clockOffsetMs.value = stream.to * 1000 - Date.now();
  assignColors(stream);
  return stream;
}

/** Cluster time in seconds since 1970. */
const clusterSeconds = computed(() => (now.value + clockOffsetMs.value) / 1000);

/** A stream up to a time, with the known time of each lane. */
interface StreamView {
  stream: Stream;
  to: number;
  known: readonly number[];
}

export function WorkerStream() {
  const polled = usePolling("stream", REFRESH_SECONDS, loadStream);
  const frozenStream = useSignal<{ stream: Stream; to: number } | undefined>(undefined);
  const { value, problem } = polled.value;
  if (!value) return problem ? <ErrorMessage subject="worker stream" problem={problem} /> : <LoadingRows rows={4} />;
  if (isPaused.value && !frozenStream.peek()) frozenStream.value = { stream: value, to: clusterSeconds.peek() };
  if (!isPaused.value && frozenStream.peek()) frozenStream.value = undefined;
  return <Lanes stream={frozenStream.value?.stream ?? value} until={frozenStream.value?.to} hasResponses={!problem} />;
}

function createFrame(stream: Stream, width: number, to: number): Frame {
  const left = width < 480 ? 72 : 132;
  return {
    left,
    top: 0,
    width: Math.max(1, width - left - 8),
    lane: laneHeight(stream.lanes.length),
    from: to - STREAM_SECONDS,
    to,
  };
}

function describeSpan({ stream, to, known }: StreamView, span: Span): string {
  const lane = stream.lanes[span.lane]?.lane ?? "";
  const until = known[span.lane] ?? to;
  const end = span.open ? until : span.end;
  const isCurrent = until >= to - 1;
  const work = span.untold
    ? HIDDEN_WORK
    : span.job_id
      ? knownJobTitle(span.job_id, span.type)
      : formatCount(span.jobs, "small job");
  const outcome = span.open
    ? isCurrent
      ? "computing now"
      : "not known since"
    : span.lost
      ? "its worker was lost"
      : span.untold
        ? formatCount(span.leases, "lease")
        : formatAmount(span.units ?? "", "unit");
  return (
    `${lane}: ${work}, ${formatClock(span.start * 1000)} to ` +
    `${span.open && isCurrent ? "now" : formatClock(end * 1000)}, ` +
    `${formatSeconds(end - span.start)}, ${outcome}`
  );
}

function Lanes({ stream, until, hasResponses }: { stream: Stream; until: number | undefined; hasResponses: boolean }) {
  const hovered = useSignal<Span | undefined>(undefined);
  const currentView = (): StreamView => {
    const to = until ?? clusterSeconds.value;
    return { stream, to, known: laneKnownUntil(stream, to, hasResponses && age.value === "live") };
  };
  const canvas = useCanvas((context, width) => draw(context, width, currentView()));
  if (!stream.lanes.length) return <NoLanes />;
  const { to, known } = currentView();
  const shares = busyShares(stream, to - STREAM_SECONDS, to, known);
  const mean = shares.reduce((sum, each) => sum + each, 0) / shares.length;
  const computing = stream.spans.filter((span) => span.open && (known[span.lane] ?? to) >= to - 1).length;
  const summary =
    `Worker stream of the last 10 minutes: ${formatCount(stream.lanes.length, "lane")}, ${formatPercent(mean)} of ` +
    `their time computing; ${computing} compute now.`;
  const find = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y, at] = [event.clientX - box.left, event.clientY - box.top, currentView()];
    return spanAt(stream, x, y, createFrame(stream, box.width, at.to), at.known);
  };
  const height = stream.lanes.length * laneHeight(stream.lanes.length) + AXIS_HEIGHT;
  return (
    <Figure
      title="Worker stream, last 10 minutes"
      summary={summary}
      getTable={() => createTable(currentView())}
      note={<StreamLegend view={currentView()} mean={mean} />}
    >
      <div
        class="lanes"
        style={{ height: `${height}px` }}
        onMouseMove={(event) => (hovered.value = find(event))}
        onMouseLeave={() => (hovered.value = undefined)}
        onClick={(event) => ((span) => span?.job_id && location.assign(jobAddress(span.job_id)))(find(event))}
        data-hit={hovered.value?.job_id ? "true" : undefined}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {hovered.value ? describeSpan(currentView(), hovered.value) : `Each bar is a job on a lane; ${POINTER_HINT}.`}
      </p>
    </Figure>
  );
}

function createTable({ stream, to, known }: StreamView) {
  const end = (span: Span) => (span.open ? Math.min(to, known[span.lane] ?? to) : span.end);
  return {
    head: ["lane", "kind", "job", "from", "to", "seconds", "units"],
    rows: stream.spans
      .toReversed()
      .map((span) => [
        stream.lanes[span.lane]?.lane ?? "",
        span.type ?? (span.untold ? "not told" : "several"),
        span.job_id ?? (span.untold ? "not told" : formatCount(span.jobs, "job")),
        formatClock(span.start * 1000),
        span.open && end(span) >= to - 1 ? "now" : formatClock(end(span) * 1000),
        formatSeconds(end(span) - span.start),
        span.lost ? "lost" : formatCompact(span.units),
      ]),
  };
}

function NoLanes() {
  return (
    <EmptyMessage title="No worker has run a job in the last 10 minutes">
      <p>
        Here each lane of each worker gets a line, and each piece of work a bar on it. Press <kbd>n</kbd> for a new job.
      </p>
    </EmptyMessage>
  );
}

/** Jobs with the most lane time, and explanations of the picture. */
function StreamLegend({ view: { stream, to, known }, mean }: { view: StreamView; mean: number }) {
  const works = sumWork(stream, to - STREAM_SECONDS, to, known);
  const rest = works.length - MAX_NAMED;
  return (
    <ul class="legend">
      <li>
        <span class="num">{formatPercent(mean)}</span> busy
      </li>
      {works.slice(0, MAX_NAMED).map(({ job, kind, share }) => (
        <li key={job || kind}>
          <Swatch job={job} />
          {job ? (
            <a class="link" href={jobAddress(job)}>
              {knownJobTitle(job, kind)}
            </a>
          ) : kind === HIDDEN_WORK ? (
            kind
          ) : (
            `small jobs: ${kind}`
          )}
          <span class="num">{formatPercent(share)}</span>
        </li>
      ))}
      {rest > 0 && <li>and {formatCount(rest, "more job")}</li>}
      {stream.resolution_seconds > 0 && <li>pieces within {formatSeconds(stream.resolution_seconds)} are joined</li>}
      {stream.complete_since > stream.to - STREAM_SECONDS && (
        <li>complete since {formatClock(stream.complete_since * 1000)}</li>
      )}
    </ul>
  );
}

// -- drawing --------------------------------------------------------------------------------------------------------

type Box = [x: number, y: number, width: number, height: number];

function draw(context: CanvasRenderingContext2D, width: number, view: StreamView): void {
  const { stream, to, known } = view;
  const frame = createFrame(stream, width, to);
  drawAxis(context, frame, stream.lanes.length * frame.lane);
  drawNames(context, frame, stream);
  for (const span of stream.spans) {
    const extent = spanEdges(span, frame, known[span.lane]);
    if (extent) drawSpan(context, boxOf(frame, span.lane, ...extent), span);
  }
  if (frame.lane >= 14) for (const run of findRuns(stream, to, known)) drawName(context, frame, run);
  for (const [lane, until] of known.entries()) drawUnknown(context, frame, lane, until);
}

function boxOf(frame: Frame, lane: number, from: number, to: number): Box {
  const gap = frame.lane > 8 ? 2 : 1;
  return [from, lane * frame.lane + gap / 2, to - from, frame.lane - gap];
}

function drawSpan(context: CanvasRenderingContext2D, box: Box, span: Span): void {
  const color = jobColor(span.job_id ?? "") ?? { series: 5, isHatched: false };
  context.fillStyle = token(`series-${color.series}`);
  context.fillRect(...box);
  if (color.isHatched) drawHatching(context, box, token("bg"));
  if (!span.lost) return;
  context.fillStyle = token("bad");
  context.fillRect(box[0] + box[2] - 3, box[1], 3, box[3]);
}

/** Draw a job's name in its bars, cut at their end; omitted if too little space remains. */
function drawName(context: CanvasRenderingContext2D, frame: Frame, run: Run): void {
  const [from, to] = [
    Math.max(frame.left, timeToX(run.start, frame)),
    Math.min(frame.left + frame.width, timeToX(run.end, frame)),
  ];
  context.font = SANS_FONT;
  const name = shortenToWidth(context, run.job ? knownJobTitle(run.job, run.kind) : run.kind, to - from - 10);
  if (!name) return;
  const color = jobColor(run.job);
  if (color?.isHatched) {
    // Text is unreadable on stripes of its own color.
    context.fillStyle = token(`series-${color.series}`);
    context.fillRect(from + 1, run.lane * frame.lane + 3, context.measureText(name).width + 8, frame.lane - 6);
  }
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = token("bg");
  context.fillText(name, from + 5, (run.lane + 0.5) * frame.lane);
}

/** Return a text shortened to a width; empty if only a few letters would fit. */
function shortenToWidth(context: CanvasRenderingContext2D, text: string, maxWidth: number): string {
  const wide = context.measureText(text).width;
  if (wide <= maxWidth) return text;
  const letters = Math.floor((text.length * maxWidth) / wide) - 1;
  return letters >= 4 ? `${text.slice(0, letters)}…` : "";
}

/** Draw a lane whose work is unknown. */
function drawUnknown(context: CanvasRenderingContext2D, frame: Frame, lane: number, until: number): void {
  const from = Math.max(frame.left, timeToX(until, frame));
  const box = boxOf(frame, lane, from, frame.left + frame.width);
  if (box[2] < 2) return;
  context.fillStyle = token("sunken");
  context.fillRect(...box);
  drawHatching(context, box, token("line-strong"));
  if (frame.lane < 14 || box[2] < 80) return;
  context.font = SANS_FONT;
  context.fillStyle = token("sunken");
  context.fillRect(box[0] + 6, box[1] + 2, 66, box[3] - 4);
  context.fillStyle = token("ink-soft");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText("not known", box[0] + 10, (lane + 0.5) * frame.lane);
}

function drawHatching(context: CanvasRenderingContext2D, [x, y, width, height]: Box, color: string): void {
  if (width < 3 || height < 4) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = color;
  context.beginPath();
  // Align the pattern to the page, so that it does not move with the bars.
  for (let at = Math.floor((x - height) / 6) * 6; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function drawAxis(context: CanvasRenderingContext2D, frame: Frame, height: number): void {
  context.font = SANS_FONT;
  context.textBaseline = "alphabetic";
  const few = frame.width < 420;
  for (const ago of TICKS) {
    if (few && ago % 300) continue;
    const x = Math.round(timeToX(frame.to - ago, frame)) + 0.5;
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

/** Return a worker's condition if it is not working normally. */
function workerCondition(worker: Worker | undefined): "lost" | "drained" | "" {
  if (!worker) return "";
  if (!worker.live) return "lost";
  return worker.draining ? "drained" : "";
}

/** Minimum space in letters of a name before its condition is displayed next to it. */
const MIN_NAME_LETTERS = 16;
/** Half the height of a letter in pixels, so that the first name is fully visible. */
const HALF_LETTER = 6;

function drawNames(context: CanvasRenderingContext2D, frame: Frame, stream: Stream): void {
  context.font = MONO_FONT;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const max = Math.floor((frame.left - 12) / 7.3);
  const every = Math.max(1, Math.ceil(14 / frame.lane));
  const workers = new Map(fleet.value.workers.map((worker) => [worker.id, worker]));
  for (const [index, { lane, worker }] of stream.lanes.entries()) {
    context.fillStyle = token("line");
    context.fillRect(frame.left, (index + 1) * frame.lane - 0.5, frame.width, 0.5);
    if (index % every) continue;
    const how = workerCondition(workers.get(worker));
    const conditionText = how && max >= MIN_NAME_LETTERS ? ` ${how}` : "";
    context.fillStyle = token(how === "lost" ? "bad" : how ? "warn" : "ink-soft");
    const text = `${shortenMiddle(lane, max - conditionText.length)}${conditionText}`;
    context.fillText(text, frame.left - 6, Math.max(HALF_LETTER, (index + 0.5) * frame.lane));
  }
}
