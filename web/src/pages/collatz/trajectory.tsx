/** Trajectory of a number of any length on a log axis, with compared trajectories, step by step. */

import { computed, effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { requestTerms, requestTrajectory } from "./model/client";
import type { Path } from "./model/messages";
import { bitLength, parsePositive, formatPower } from "./model/number";
import { bitAt, decimateCurve, findMeeting } from "./model/trajectory";
import { messageOf } from "../../lib/errors";
import { copyText } from "../../lib/export";
import { formatCompact, formatCount, formatInteger, formatPercent } from "../../lib/format";
import { hasReducedMotion, token } from "../../lib/theme";
import { Button, TextButton } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { showToast } from "../../ui/toast";
import { isStar, addLine } from "./model/events";
import { CheckboxField, NumberField } from "./fields";
import { setFont, drawXTicks, drawYTicks, type Box } from "./model/plot";
import { usePicture } from "./model/savable-pictures";
import { choiceCount, compareNumber, MAX_PATHS, startNumber, state } from "./model/state";

const DASHES: number[][] = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [1, 3], [4, 2, 1, 2], [3, 6]];
const MARGIN = { left: 60, right: 12, top: 10, bottom: 54 };
/** Height of the parity strip. */
const STRIP_HEIGHT = 12;
const GAP = 12;

/** Trajectories keyed by the number's digits. */
const paths = signal<ReadonlyMap<string, Path>>(new Map());
const pendingNames = signal<ReadonlySet<string>>(new Set());
const errorTexts = signal<ReadonlyMap<string, string>>(new Map());

const names = computed(() => {
  const first = startNumber.value.value;
  const others = state.with.value.flatMap((text) => parsePositive(text).value ?? []);
  const all = first === undefined ? others : [first, ...others];
  return [...new Set(all.map(String))].slice(0, MAX_PATHS);
});
/** The available trajectories, main one first. */
const availablePaths = computed(() => names.value.flatMap((name) => paths.value.get(name) ?? []));

effect(() => {
  for (const name of names.value) if (!paths.peek().has(name) && !pendingNames.peek().has(name)) void loadPath(name);
});

async function loadPath(name: string): Promise<void> {
  pendingNames.value = new Set(pendingNames.peek()).add(name);
  try {
    const walked = await requestTrajectory(BigInt(name));
    const kept = [...paths.peek()].filter(([each]) => names.peek().includes(each));
    paths.value = new Map([...kept, [name, walked]]);
    logPath(walked);
  } catch (error) {
    errorTexts.value = new Map(errorTexts.peek()).set(name, messageOf(error));
  }
  const rest = new Set(pendingNames.peek());
  rest.delete(name);
  pendingNames.value = rest;
}

function logPath(path: Path): void {
  addLine(
    "number",
    `${formatShort(path.n)}: ${formatCount(path.delay, "step")}, ${formatInteger(path.odd)} odd, ` +
      `peak ${formatShort(path.peak)}`,
    {
      steps: path.delay,
      star: isStar(path.n, path.delay, path.peak),
    },
  );
}

/** Format up to 40 digits in full, otherwise only the ends. */
export function formatShort(value: bigint): string {
  const text = String(value);
  return text.length <= 40
    ? formatInteger(value)
    : `${text.slice(0, 12)}\u2026${text.slice(-8)} (${formatInteger(text.length)} digits)`;
}

// -- visible steps --------------------------------------------------------------------------------------------------

const longest = computed(() => Math.max(1, ...availablePaths.value.map((path) => path.delay)));
/** Range of visible steps; first-last in the URL. */
const span = computed<[number, number]>(() => {
  const [from, to] = state.steps.value.split("-").map(Number);
  return from !== undefined && to !== undefined && from >= 0 && to > from
    ? [from, Math.min(to, longest.value)]
    : [0, longest.value];
});

function setSteps(from: number, to: number): void {
  const max = longest.peek();
  const wide = Math.min(max, Math.max(8, to - from));
  const left = Math.max(0, Math.min(max - wide, from));
  state.steps.value = wide >= max ? "" : `${Math.round(left)}-${Math.round(left + wide)}`;
}

/** Return the shift of a path that aligns the ends of all paths. */
function alignmentShift(path: Path): number {
  return state.tails.value ? longest.value - path.delay : 0;
}

// -- the picture ----------------------------------------------------------------------------------------------------

interface PathMeeting {
  step: number;
  with: bigint;
  remaining: number;
}

/** Points at which the other trajectories join the first. */
const meetings = computed<PathMeeting[]>(() => {
  const [first, ...others] = availablePaths.value;
  if (!first?.isComplete) return [];
  return others
    .filter((path) => path.isComplete)
    .map((path) => {
      const {
        steps: [own],
        remaining,
      } = findMeeting(first, path);
      return { step: own, with: path.n, remaining };
    });
});

function draw(context: CanvasRenderingContext2D, width: number, height: number): void {
  setFont(context);
  const box: Box = {
    left: MARGIN.left,
    top: MARGIN.top,
    width: width - MARGIN.left - MARGIN.right,
    height: height - MARGIN.top - MARGIN.bottom,
  };
  const [from, to] = span.value;
  const high =
    Math.max(4, ...availablePaths.value.map((path) => path.logs.reduce((max, value) => Math.max(max, value), 0))) *
    1.04;
  drawYTicks(context, box, 0, high, (value) => formatPower(2, Math.round(value)));
  drawXTicks(
    context,
    { ...box, height: box.height + STRIP_HEIGHT + GAP },
    from,
    to,
    (value) => formatInteger(value),
    state.tails.value ? "steps, ends together" : "steps",
  );
  const y = (log: number) => box.top + box.height * (1 - log / high);
  const x = (step: number) => box.left + ((step - from) / (to - from)) * box.width;
  context.save();
  context.beginPath();
  context.rect(box.left - 6, box.top - 6, box.width + 12, box.height + 12);
  context.clip();
  for (const [index, path] of [...availablePaths.value.entries()].reverse())
    drawCurve(context, path, index, box, from, to, y);
  if (state.tails.value || availablePaths.value.length > 1) drawCrosses(context, x, y);
  drawMarker(context, box, x, y);
  context.restore();
  drawParityStrip(context, box, from, to);
}

/** Draw a line: every value if they are wider than a pixel, otherwise minimum and maximum per pixel. */
function drawCurve(
  context: CanvasRenderingContext2D,
  path: Path,
  index: number,
  box: Box,
  from: number,
  to: number,
  y: (log: number) => number,
): void {
  const off = alignmentShift(path);
  context.strokeStyle = token(`series-${index + 1}`);
  context.lineWidth = index ? 1.5 : 2;
  context.setLineDash(DASHES[index] ?? []);
  context.beginPath();
  if (to - from <= 2 * box.width) {
    for (let step = Math.max(0, Math.floor(from - off)); step <= Math.min(path.delay, Math.ceil(to - off)); step += 1) {
      context.lineTo(box.left + ((step + off - from) / (to - from)) * box.width, y(path.logs[step] as number));
    }
  } else {
    const { low, high } = decimateCurve(path.logs, from - off, to - off, Math.floor(box.width));
    for (const [column, value] of high.entries()) {
      if (value === -Infinity) continue;
      context.lineTo(box.left + column, y(value));
      context.lineTo(box.left + column, y(low[column] as number));
    }
  }
  context.stroke();
  context.setLineDash([]);
}

function drawCrosses(context: CanvasRenderingContext2D, x: (step: number) => number, y: (log: number) => number): void {
  const [first] = availablePaths.value;
  context.lineWidth = 2;
  for (const [order, step] of [...new Set(meetings.value.map((meet) => meet.step))].entries()) {
    const who = meetings.value.flatMap((meet, index) => (meet.step === step ? index + 2 : []));
    const [at, up] = [x(step + (first ? alignmentShift(first) : 0)), y(first?.logs[step] ?? 0)];
    context.strokeStyle = token("ink");
    context.fillStyle = token("bg");
    context.beginPath();
    context.arc(at, up, 5, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
    context.fillStyle = token("ink");
    context.textAlign = at > 200 ? "right" : "left";
    context.textBaseline = "bottom";
    context.fillText(`meets ${who.join(", ")}`, at + (at > 200 ? -8 : 8), up - 4 - 14 * (order % 3));
  }
}

function drawMarker(
  context: CanvasRenderingContext2D,
  box: Box,
  x: (step: number) => number,
  y: (log: number) => number,
): void {
  const [path] = availablePaths.value;
  if (!path) return;
  const step = Math.min(path.delay, state.step.value);
  const at = x(step + alignmentShift(path));
  context.strokeStyle = token("accent");
  context.lineWidth = 1;
  context.strokeRect(Math.round(at) + 0.5, box.top, 0, box.height);
  context.beginPath();
  context.arc(at, y(path.logs[step] ?? 0), 4.5, 0, 2 * Math.PI);
  context.fillStyle = token("accent");
  context.fill();
}

/** Draw a mark for each odd number of the first path, or their density if they are narrower than pixels. */
function drawParityStrip(context: CanvasRenderingContext2D, box: Box, from: number, to: number): void {
  const [path] = availablePaths.value;
  if (!path) return;
  const odd = getParities(path);
  const off = alignmentShift(path);
  const top = box.top + box.height + GAP;
  const scale = box.width / (to - from);
  context.fillStyle = token("series-1");
  for (let column = 0; column < box.width; column += 1) {
    const first = Math.max(0, Math.floor(from - off + column / scale));
    const end = Math.min(path.delay, Math.max(first + 1, Math.floor(from - off + (column + 1) / scale)));
    const count = from - off + column / scale < 0 ? 0 : odd.subarray(first, end).reduce((sum, each) => sum + each, 0);
    const tall = count && (STRIP_HEIGHT * count) / (end - first);
    context.fillRect(box.left + column, top + STRIP_HEIGHT - tall, 1, tall);
  }
  context.fillStyle = token("ink-soft");
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText("odd", box.left - 6, top + STRIP_HEIGHT / 2);
}

let cachedParities: { path: Path; odd: Uint8Array } | undefined;

/** Return 1 for each step that starts at an odd number. */
function getParities(path: Path): Uint8Array {
  if (cachedParities?.path === path) return cachedParities.odd;
  const odd = new Uint8Array(path.delay + 1);
  let step = 0;
  for (let index = 0; index < path.shortcut; index += 1) {
    const bit = bitAt(path.parity, index);
    odd[step] = bit;
    step += 1 + bit;
  }
  cachedParities = { path, odd };
  return odd;
}

// -- step by step ---------------------------------------------------------------------------------------------------

/** The values at the current step and the next one. */
const currentValues = signal<{ name: string; step: number; values: bigint[] } | undefined>(undefined);
/** Number of listed terms from the current step on. */
const MAX_LISTED = 200;

effect(() => {
  const [path] = availablePaths.value;
  if (!path) return;
  const [step, count] = [Math.min(path.delay, state.step.value), state.terms.value ? MAX_LISTED : 2];
  void requestTerms(path.n, step, count).then(
    ({ values }) => {
      if (availablePaths.peek()[0] === path && Math.min(path.delay, state.step.peek()) === step)
        currentValues.value = { name: String(path.n), step, values };
    },
    () => undefined,
  );
});

export function goToStep(step: number): void {
  const max = availablePaths.peek()[0]?.delay ?? 0;
  state.step.value = Math.max(0, Math.min(max, Math.round(step)));
}

export const isPlaying = signal(false);

effect(() => {
  if (!isPlaying.value) return undefined;
  const timer = setInterval(() => {
    const path = availablePaths.peek()[0];
    if (!path || state.step.peek() >= path.delay) isPlaying.value = false;
    else goToStep(state.step.peek() + 1);
  }, state.speed.value);
  return () => clearInterval(timer);
});

function Rule({ path }: { path: Path }) {
  const at = currentValues.value;
  const step = Math.min(path.delay, state.step.value);
  if (!at || at.name !== String(path.n) || at.step !== step)
    return <p class="rule num small">step {formatInteger(step)}</p>;
  const [value, next] = at.values;
  if (value === undefined) return null;
  if (value === 1n || next === undefined)
    return (
      <p class="rule num small">
        step {formatInteger(step)}: {formatShort(value)}, the end
      </p>
    );
  const odd = (value & 1n) === 1n;
  return (
    <p class="rule num small">
      step {formatInteger(step)}: {formatShort(value)} is {odd ? "odd" : "even"}, {odd ? "3n + 1" : "n / 2"} ={" "}
      {formatShort(next)}
    </p>
  );
}

function StepSlider({ path }: { path: Path }) {
  const step = Math.min(path.delay, state.step.value);
  return (
    <div class="scrub">
      <Button aria-label={isPlaying.value ? "Stop" : "Play"} onClick={() => (isPlaying.value = !isPlaying.value)}>
        {isPlaying.value ? "❚❚" : "▶"}
      </Button>
      <Button aria-label="Step back" onClick={() => goToStep(step - 1)}>
        ‹
      </Button>
      <input
        type="range"
        class="grow"
        min={0}
        max={path.delay}
        value={step}
        aria-label="Step of the trajectory"
        aria-valuetext={`step ${step} of ${path.delay}`}
        onInput={(event) => goToStep(Number(event.currentTarget.value))}
      />
      <Button aria-label="Step on" onClick={() => goToStep(step + 1)}>
        ›
      </Button>
      <Button onClick={() => goToStep(path.peakStep)}>To the peak</Button>
      <label class="inline">
        a step each
        <input
          type="range"
          class="speed"
          min={100}
          max={2000}
          step={100}
          value={state.speed.value}
          aria-valuetext={`${state.speed.value} ms`}
          onInput={(event) => (state.speed.value = Number(event.currentTarget.value))}
        />
        <span class="num speed-value">{state.speed.value} ms</span>
      </label>
      <CheckboxField name="terms">all terms</CheckboxField>
    </div>
  );
}

function Terms() {
  const at = currentValues.value;
  if (!state.terms.value || !at) return null;
  return (
    <ol class="terms num small" tabIndex={0} aria-label={`Terms from step ${at.step} on`}>
      {at.values.map((value, index) => (
        <li key={index}>
          <span class="soft">{formatInteger(at.step + index)}</span> {formatShort(value)}
        </li>
      ))}
      {at.values.length === MAX_LISTED && <li class="soft">the next {MAX_LISTED}: move the slider</li>}
    </ol>
  );
}

// -- rendering ------------------------------------------------------------------------------------------------------

/** Format a factor from its log2. */
function formatFactor(log: number): string {
  return log < 60 ? formatCompact(2 ** log) : formatPower(2, Math.round(log));
}

function Facts({ path }: { path: Path }) {
  const rows: [string, string, bigint | undefined][] = [
    ["n", formatShort(path.n), path.n],
    ["Steps", formatInteger(path.delay), undefined],
    ["Odd steps", `${formatInteger(path.odd)}, ${formatPercent(path.odd / Math.max(1, path.delay))}`, undefined],
    ["Peak", formatShort(path.peak), path.peak],
    [
      "Peak is",
      `${formatFactor((path.logs[path.peakStep] ?? 0) - (path.logs[0] ?? 0))} n, ` +
        `${formatInteger(bitLength(path.peak))} bits`,
      undefined,
    ],
    ["Peak at", `step ${formatInteger(path.peakStep)}`, undefined],
  ];
  return (
    <dl class="facts">
      {rows.map(([name, text, whole]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class="num" data-fact={name}>
            {text}
            {whole !== undefined && text.includes("\u2026") && (
              <>
                {" "}
                <CopyButton value={whole} what={name} />
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function CopyButton({ value, what }: { value: bigint; what: string }) {
  const run = async () =>
    showToast(
      (await copyText(String(value))) ? `Copied all digits of ${what}` : "The browser does not allow this page to copy",
    );
  return (
    <Button class="link small" aria-label={`Copy ${what}`} onClick={() => void run()}>
      copy
    </Button>
  );
}

function Compared() {
  const text = useSignal("");
  const why = useSignal("");
  const add = (event: Event) => {
    event.preventDefault();
    const parsed = parsePositive(text.value);
    why.value = parsed.error ?? (names.value.length >= MAX_PATHS ? `at most ${MAX_PATHS} at a time` : "");
    if (why.value) return;
    compareNumber(text.value.trim());
    text.value = "";
  };
  return (
    <form class="compare row" onSubmit={add}>
      <label class="inline">
        compare with
        <input
          class="num"
          size={12}
          value={text.value}
          aria-invalid={!!why.value}
          spellcheck={false}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
      </label>
      <button type="submit" disabled={!text.value.trim()}>
        Compare
      </button>
      {why.value && (
        <span class="small bad" role="status">
          {why.value}
        </span>
      )}
      {state.with.value.length > 0 && <CheckboxField name="tails">ends together</CheckboxField>}
    </form>
  );
}

function Lines() {
  if (availablePaths.value.length < 2) return null;
  return (
    <ul class="paths small">
      {availablePaths.value.map((path, index) => (
        <li key={String(path.n)}>
          <span class="num">
            <svg viewBox="0 0 24 8" aria-hidden="true">
              <path
                d="M0 4h24"
                stroke={`var(--series-${index + 1})`}
                stroke-width="2"
                stroke-dasharray={DASHES[index]?.join(" ")}
              />
            </svg>{" "}
            {index + 1}: {formatShort(path.n)}, {formatCount(path.delay, "step")}
          </span>
          {index > 0 && <MeetingText index={index - 1} />}
          {index > 0 && <TextButton onClick={() => compareNumber(typedName(path.n), false)}>take out</TextButton>}
        </li>
      ))}
    </ul>
  );
}

/** Return the number as it was typed. */
function typedName(n: bigint): string {
  return state.with.peek().find((each) => parsePositive(each).value === n) ?? String(n);
}

function MeetingText({ index }: { index: number }) {
  const meet = meetings.value[index];
  const value = useSignal<bigint | undefined>(undefined);
  const first = availablePaths.value[0];
  const other = meet?.with;
  useEffect(() => {
    if (meet && first)
      void requestTerms(first.n, meet.step, 1).then(
        ({ values }) => (value.value = values[0]),
        () => undefined,
      );
  }, [first?.n, other, meet?.step]);
  if (!meet) return null;
  return (
    <span class="num soft" data-meets={value.value === undefined ? "" : String(value.value)}>
      meets 1 at {value.value === undefined ? "\u2026" : formatShort(value.value)},{" "}
      {formatCount(meet.remaining, "step")} before 1
    </span>
  );
}

function summaryText(): string {
  const [path] = availablePaths.value;
  if (!path) return "No trajectory yet";
  const met = meetings.value
    .map((meet) => ` It meets that of ${formatShort(meet.with)} ${formatCount(meet.remaining, "step")} before 1.`)
    .join("");
  return (
    `Trajectory of ${formatShort(path.n)}: ${formatCount(path.delay, "step")}, ` +
    `${formatInteger(path.odd)} of them odd, peak ${formatShort(path.peak)} at ` +
    `step ${formatInteger(path.peakStep)}.${met}`
  );
}

function createTable() {
  const rows = availablePaths.value.flatMap((path) => {
    const every = Math.max(1, Math.ceil(path.delay / 250));
    return Array.from({ length: Math.floor(path.delay / every) + 1 }, (_, index) => [
      formatShort(path.n),
      formatInteger(index * every),
      (path.logs[index * every] as number).toFixed(3),
    ]);
  });
  return { head: ["n", "step", "log2 of the value"], rows };
}

export function Trajectory() {
  const canvas = usePicture("trajectory", "Collatz: a trajectory, log2 of its values by step", summaryText(), draw);
  const container = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; from: number; to: number; moved: boolean } | undefined>(undefined);
  const [path] = availablePaths.value;
  useEffect(() => {
    const element = container.current;
    const roll = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== element && !element?.matches(":hover"))
        return;
      event.preventDefault();
      const [from, to] = span.peek();
      const at = from + pointerShare(event, element as HTMLElement) * (to - from);
      const factor = 1.0015 ** event.deltaY;
      setSteps(at - (at - from) * factor, at + (to - at) * factor);
    };
    element?.addEventListener("wheel", roll, { passive: false });
    return () => element?.removeEventListener("wheel", roll);
  }, [path === undefined]);
  const wrong = startNumber.value.error;
  const summary = summaryText();
  const section = useRef<HTMLElement>(null);
  useEffect(() => {
    // in a one-column layout, the selected trajectory is outside the window
    if (choiceCount.value && matchMedia("(max-width: 900px)").matches)
      section.current?.scrollIntoView({ block: "start", behavior: hasReducedMotion ? "auto" : "smooth" });
  }, [choiceCount.value]);
  const down = (event: PointerEvent) => {
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    const [from, to] = span.peek();
    drag.current = { x: event.clientX, from, to, moved: false };
  };
  const move = (event: PointerEvent) => {
    const at = drag.current;
    if (!at) return;
    if (Math.abs(event.clientX - at.x) > 3) at.moved = true;
    const wide = (event.currentTarget as HTMLElement).clientWidth - MARGIN.left - MARGIN.right;
    const by = ((at.x - event.clientX) / wide) * (at.to - at.from);
    if (at.moved) setSteps(at.from + by, at.to + by);
  };
  const up = (event: PointerEvent) => {
    const at = drag.current;
    drag.current = undefined;
    if (!at || at.moved || !path) return;
    const [from, to] = span.peek();
    goToStep(from + pointerShare(event, event.currentTarget as HTMLElement) * (to - from) - alignmentShift(path));
  };
  return (
    <section class="trajectory" aria-label="Trajectory" ref={section}>
      <div class="row">
        <h2>Trajectory</h2>
        <NumberField
          text="of n ="
          id="number"
          value={state.n.value}
          error={wrong}
          note="number-note"
          onChange={(text) => {
            state.n.value = text;
            state.step.value = 0;
            state.steps.value = "";
            state.commit();
          }}
        />
        <span id="number-note" class={wrong ? "small bad" : "small soft"} role="status">
          {wrong ??
            [...errorTexts.value.values()].at(-1) ??
            (pendingNames.value.size ? "computing" : "digits, 2^89-1, 3^5*2^7+1, 10^100+7")}
        </span>
        {state.steps.value && <Button onClick={() => (state.steps.value = "")}>All steps</Button>}
      </div>
      {path && (
        <div class="trajectory-body">
          <Figure summary={summary} getTable={createTable}>
            <div class="plot-space path" ref={container} onPointerDown={down} onPointerMove={move} onPointerUp={up}>
              <Canvas canvasRef={canvas} summary={summary} class="fill" />
            </div>
          </Figure>
          <Facts path={path} />
        </div>
      )}
      {path && <Rule path={path} />}
      {path && <StepSlider path={path} />}
      <Terms />
      <Compared />
      <Lines />
    </section>
  );
}

function pointerShare(event: MouseEvent, element: HTMLElement): number {
  const box = element.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right)));
}

/** Start or stop the animation; with reduced motion, the user steps manually. */
export function togglePlay(): void {
  if (hasReducedMotion) goToStep(state.step.peek() + 1);
  else isPlaying.value = !isPlaying.peek();
}
