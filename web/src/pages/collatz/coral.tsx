/** Trajectories drawn as a coral that turns left on even numbers and right on odd numbers. */

import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { boundingBox, createCoral, formatSvg, rotateUpright } from "./model/coral";
import { paletteColors, PALETTES, type Palette } from "./model/palette";
import { download } from "../../lib/export";
import { formatInteger } from "../../lib/format";
import { hasReducedMotion, isDark } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { savePicture } from "./model/page-actions";
import { useSavable } from "./model/savable-pictures";
import { useCanvas } from "../../ui/canvas";
import type { Picture } from "../../ui/picture";
import { state } from "./model/state";

const MAX_NUMBERS = 30_000;
/** Duration of the growth animation in milliseconds. */
const GROWTH_MS = 2400;
/** Size of the saved coral in page pixels. */
const SAVED_SIZE = { width: 1888, height: 999 };

const segments = computed(() =>
  rotateUpright(
    createCoral({
      numbers: Math.max(2, Math.min(MAX_NUMBERS, Math.round(state.numbers.value))),
      even: state.even.value,
      odd: state.odd.value,
    }),
  ),
);
const palette = computed<Palette>(() => PALETTES.find((each) => each === state.palette.value) ?? "viridis");
/** Fraction of the depth that has grown, 0 to 1. */
const growth = signal(1);

function draw(context: CanvasRenderingContext2D, width: number, height: number, share = 1): void {
  const all = segments.value;
  const box = boundingBox(all);
  const scale = 0.96 * Math.min(width / box.width, height / box.height);
  const x = (value: number) => width / 2 + (value - box.left - box.width / 2) * scale;
  const y = (value: number) => height / 2 - (value - box.top + box.height / 2) * scale;
  const deepest = all.at(-1)?.depth || 1;
  const paint = paletteColors(palette.value, isDark.value);
  const thick = Math.max(1, Math.min(width, height) / 700);
  context.lineCap = "round";
  let depth = 0;
  const flush = () => {
    context.strokeStyle = paint(depth / deepest);
    context.lineWidth = thick * Math.max(0.6, 3.5 * (1 - depth / deepest));
    context.stroke();
  };
  context.beginPath();
  for (const each of all) {
    if (each.depth > share * deepest) break;
    if (each.depth !== depth) {
      flush();
      context.beginPath();
      depth = each.depth;
    }
    context.moveTo(x(each.x0), y(each.y0));
    context.lineTo(x(each.x1), y(each.y1));
  }
  flush();
}

let frame = 0;

function stopGrowth(): void {
  cancelAnimationFrame(frame);
  growth.value = 1;
}

/** Animate the growth of the coral and return a function that stops it. */
function animateGrowth(): () => void {
  cancelAnimationFrame(frame);
  if (hasReducedMotion) return stopGrowth;
  const began = performance.now();
  const step = (now: number) => {
    growth.value = Math.min(1, Math.max(0, now - began) / GROWTH_MS);
    if (growth.peek() < 1) frame = requestAnimationFrame(step);
  };
  growth.value = 0;
  frame = requestAnimationFrame(step);
  return stopGrowth;
}

function describeCoral(): string {
  return (
    `trajectories of 2 to ${formatInteger(state.numbers.value)} back from 1, even turns left by ` +
    `${state.even.value}°, odd right by ${state.odd.value}°`
  );
}

/** Return the whole coral with its parameters; the saved file has 3840 x 2160 pixels. */
function createPicture(): Picture {
  return { title: "Collatz coral", lines: [describeCoral()], ...SAVED_SIZE, draw };
}

function Slider({
  name,
  text,
  least: min,
  most: max,
  step,
  unit,
}: {
  name: "even" | "odd" | "numbers";
  text: string;
  least: number;
  most: number;
  step: number;
  unit: string;
}) {
  return (
    <label class="inline">
      {text}
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={state[name].value}
        aria-valuetext={`${state[name].value} ${unit}`}
        onInput={(event) => (state[name].value = Number(event.currentTarget.value))}
      />
      <span class="num slider-value">
        {formatInteger(Math.trunc(state[name].value))}
        {state[name].value % 1 ? `.${String(state[name].value).split(".")[1]}` : ""}
        {unit}
      </span>
    </label>
  );
}

function PaletteField() {
  return (
    <label class="inline">
      palette
      <select value={palette.value} onChange={(event) => (state.palette.value = event.currentTarget.value)}>
        {PALETTES.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
    </label>
  );
}

export function CoralView() {
  useSavable("coral", createPicture);
  useEffect(animateGrowth, []);
  const canvas = useCanvas((context, width, height) => draw(context, width, height, growth.value));
  const words = `Collatz coral: ${describeCoral()}; ${formatInteger(segments.value.length)} numbers`;
  const save = () =>
    download(
      "collatz-coral.svg",
      formatSvg(segments.value, paletteColors(palette.value, isDark.value), words),
      "image/svg+xml",
    );
  return (
    <div class="stack">
      <Figure summary={`${words}.`} getTable={() => ({ head: ["steps from 1", "numbers"], rows: countLevels() })}>
        <div class="plot-space coral-space">
          <Canvas canvasRef={canvas} summary={`${words}.`} class="fill" />
        </div>
      </Figure>
      <div class="row">
        <Slider name="even" text="even turns" least={-45} most={45} step={0.05} unit="°" />
        <Slider name="odd" text="odd turns" least={-45} most={45} step={0.05} unit="°" />
        <Slider name="numbers" text="numbers to" least={10} most={MAX_NUMBERS} step={10} unit="" />
        <PaletteField />
        {!hasReducedMotion && <Button onClick={animateGrowth}>Grow</Button>}
        <Button onClick={() => void savePicture("coral")}>PNG, 4K</Button>
        <Button onClick={save}>SVG</Button>
      </div>
    </div>
  );
}

function countLevels(): number[][] {
  const counts = new Map<number, number>();
  for (const { depth } of segments.value) counts.set(depth, (counts.get(depth) ?? 0) + 1);
  return [...counts];
}
