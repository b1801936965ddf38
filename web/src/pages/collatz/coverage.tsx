/** Verified numbers on this cluster and elsewhere, and the position of the view within the kind's limits. */

import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { log2, power } from "./model/number";
import { seen } from "./model/view";
import { get } from "../../lib/api";
import { messageOf } from "../../lib/errors";
import { formatCompact, formatInteger } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas } from "../../ui/canvas";
import { letters } from "./model/plot";
import { finished } from "./model/run";
import { limits, range, view } from "./model/state";

interface Verified {
  up_to: number | string | null;
  ranges: { first: number | string; last: number | string }[];
  more_ranges: number;
}

const verified = signal<Verified | undefined>(undefined);
const unknown = signal("");

async function ask(): Promise<void> {
  try {
    verified.value = await get<Verified>("/api/kinds/collatz/marks/verified");
    unknown.value = "";
  } catch (error) {
    unknown.value = messageOf(error);
  }
}

/** End of the bar: 2^96. */
const BITS = 96;
/** All numbers below 2^71 were verified by Barina, Journal of Supercomputing 81, 2025. */
export const FRONTIER_BITS = 71;
const BAR = { top: 3, height: 12 };

function words(): string {
  const marks = verified.value;
  if (!marks)
    return unknown.value ? `The verified numbers could not be read: ${unknown.value}` : "Loading the verified numbers";
  const beyond =
    marks.ranges.filter(({ last }) => marks.up_to === null || BigInt(last) > BigInt(marks.up_to)).length +
    marks.more_ranges;
  const head =
    marks.up_to === null ? "Verified here from 1 on: none" : `Verified here: 1 to ${formatInteger(marks.up_to)}`;
  return `${head}${beyond ? `, and ${beyond} range${beyond > 1 ? "s" : ""} beyond` : ""}`;
}

function draw(context: CanvasRenderingContext2D, width: number): void {
  const place = (bits: number) => (bits / BITS) * width;
  const x = (n: bigint) => place(log2(n > 0n ? n : 1n));
  context.fillStyle = token("sunken");
  context.fillRect(0, BAR.top, width, BAR.height);
  context.fillStyle = token("line-strong");
  context.fillRect(0, BAR.top + BAR.height - 4, place(FRONTIER_BITS), 4);
  context.fillStyle = token("good");
  for (const { first, last } of verified.value?.ranges ?? []) {
    const from = x(BigInt(first));
    context.fillRect(from, BAR.top, Math.max(2, x(BigInt(last) + 1n) - from), BAR.height);
  }
  context.strokeStyle = token("ink-soft");
  context.strokeRect(0.5, BAR.top + 0.5, width - 1, BAR.height - 1);
  ticks(context, width, place);
  frame(context, x(range.value.first), x(range.value.end), "ink-soft", 3);
  const now = seen(view.value, limits);
  frame(context, x(now.first), x(now.end), "accent", 0);
}

/** Draw powers of two and the frontier below the bar. */
function ticks(context: CanvasRenderingContext2D, width: number, place: (bits: number) => number): void {
  letters(context);
  context.textBaseline = "top";
  const top = BAR.top + BAR.height;
  const marks = Array.from({ length: BITS / 16 + 1 }, (_, step) => 16 * step);
  for (const bits of [...marks.filter((each) => Math.abs(each - FRONTIER_BITS) > 8), FRONTIER_BITS]) {
    const at = Math.min(width - 1, Math.round(place(bits)));
    context.fillStyle = token("ink-soft");
    context.fillRect(at, bits === FRONTIER_BITS ? BAR.top : top, 1, bits === FRONTIER_BITS ? BAR.height + 5 : 5);
    context.textAlign = bits === 0 ? "left" : bits === BITS ? "right" : "center";
    const text =
      bits === FRONTIER_BITS ? (width > 500 ? `published ${power(2, bits)}` : power(2, bits)) : power(2, bits);
    context.fillText(bits ? text : "1", at, top + 6);
  }
}

export function Coverage() {
  useEffect(() => {
    void ask();
    // a finished job moves the mark a moment later
    let [before, timer] = [finished.peek(), 0];
    const stop = effect(() => {
      const more = finished.value > before;
      before = finished.value;
      if (!more) return;
      clearTimeout(timer);
      timer = window.setTimeout(() => void ask(), 1500);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  const text = words();
  const canvas = useCanvas(draw);
  const published = `published by others: all below ${power(2, FRONTIER_BITS)}`;
  return (
    <div class="coverage">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${text}; ${published}. The bar runs from 1 to 2^96 on a log scale; the frame is the view.`}
      />
      <p class="small soft">
        {text}; {published} (Barina, 2025)
        <span class="axis">
          {" "}
          · frame: the view
          {range.value.end > 2n ** 53n ? "" : ` of ${formatCompact(range.value.end - range.value.first)}`}
        </span>
      </p>
    </div>
  );
}

function frame(context: CanvasRenderingContext2D, from: number, to: number, color: string, inset: number): void {
  context.strokeStyle = token(color);
  context.lineWidth = 2;
  context.strokeRect(Math.max(1, from), BAR.top - 2 + inset, Math.max(3, to - from - 1), BAR.height + 4 - 2 * inset);
  context.lineWidth = 1;
}
