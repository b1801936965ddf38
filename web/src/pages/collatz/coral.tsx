/** Trajectories as a coral: left on even numbers, right on odd ones. */

import { computed } from "@preact/signals";
import { bounds, coral, svg } from "./model/coral";
import { css, viridis } from "../../density/colour";
import { download } from "../../lib/export";
import { integer } from "../../lib/format";
import { dark } from "../../lib/theme";
import { Canvas, Figure } from "../../ui/figure";
import { savePicture } from "./model/acts";
import { usePicture } from "./model/save";
import { state } from "./model/state";

const MOST = 30_000;

const segments = computed(() =>
  coral({
    numbers: Math.max(2, Math.min(MOST, Math.round(state.numbers.value))),
    even: state.even.value,
    odd: state.odd.value,
  }),
);

function draw(context: CanvasRenderingContext2D, width: number, height: number): void {
  const all = segments.value;
  const box = bounds(all);
  const scale = 0.94 * Math.min(width / box.width, height / box.height);
  const x = (value: number) => width / 2 + (value - box.left - box.width / 2) * scale;
  const y = (value: number) => height / 2 - (value - box.top + box.height / 2) * scale;
  const deepest = all.at(-1)?.depth || 1;
  context.lineCap = "round";
  let depth = 0;
  const flush = () => {
    context.strokeStyle = css(viridis(depth / deepest, dark.value));
    context.lineWidth = Math.max(0.6, 3.5 * (1 - depth / deepest));
    context.stroke();
  };
  context.beginPath();
  for (const each of all) {
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

function Slider({
  name,
  text,
  least,
  most,
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
        min={least}
        max={most}
        step={step}
        value={state[name].value}
        aria-valuetext={`${state[name].value} ${unit}`}
        onInput={(event) => (state[name].value = Number(event.currentTarget.value))}
      />
      <span class="num slider-value">
        {integer(Math.trunc(state[name].value))}
        {state[name].value % 1 ? `.${String(state[name].value).split(".")[1]}` : ""}
        {unit}
      </span>
    </label>
  );
}

export function CoralView() {
  const canvas = usePicture("coral", draw);
  const words =
    `The trajectories of 2 to ${integer(state.numbers.value)} back from 1, ` +
    `${integer(segments.value.length)} numbers; even turns left by ${state.even.value}°, odd right by ` +
    `${state.odd.value}°`;
  const save = () =>
    download(
      "collatz-coral.svg",
      svg(segments.value, (share) => css(viridis(share, dark.value)), words),
      "image/svg+xml",
    );
  return (
    <div class="stack">
      <Figure summary={`${words}.`} twin={() => ({ head: ["steps from 1", "numbers"], rows: levels() })}>
        <div class="plot-space tall">
          <Canvas at={canvas} summary={`${words}.`} class="fill" />
        </div>
      </Figure>
      <div class="row">
        <Slider name="even" text="even turns" least={-45} most={45} step={0.05} unit="°" />
        <Slider name="odd" text="odd turns" least={-45} most={45} step={0.05} unit="°" />
        <Slider name="numbers" text="numbers to" least={10} most={MOST} step={10} unit="" />
        <button type="button" onClick={() => savePicture("coral")}>
          PNG
        </button>
        <button type="button" onClick={save}>
          SVG
        </button>
      </div>
    </div>
  );
}

function levels(): number[][] {
  const counts = new Map<number, number>();
  for (const { depth } of segments.value) counts.set(depth, (counts.get(depth) ?? 0) + 1);
  return [...counts];
}
