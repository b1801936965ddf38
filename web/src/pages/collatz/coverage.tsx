/** Verified numbers on this cluster and elsewhere, and the position of the view within the kind's limits. */

import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { log2, formatPower } from "./model/number";
import { visibleRange } from "./model/view";
import { get } from "../../lib/api";
import { messageOf } from "../../lib/errors";
import { formatCompact, formatInteger } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas } from "../../ui/canvas";
import { setFont } from "./model/plot";
import { finishedCount } from "./model/run";
import { limits, range, view } from "./model/state";

interface VerifiedRanges {
  up_to: number | string | null;
  ranges: { first: number | string; last: number | string }[];
  more_ranges: number;
}

const verified = signal<VerifiedRanges | undefined>(undefined);
const problemText = signal("");

async function loadVerified(): Promise<void> {
  try {
    verified.value = await get<VerifiedRanges>("/api/kinds/collatz/marks/verified");
    problemText.value = "";
  } catch (error) {
    problemText.value = messageOf(error);
  }
}

/** End of the bar: 2^96. */
const BAR_BITS = 96;
/** All numbers below 2^71 were verified by Barina, Journal of Supercomputing 81, 2025. */
export const FRONTIER_BITS = 71;
const BAR = { top: 3, height: 12 };

function describeCoverage(): string {
  const marks = verified.value;
  if (!marks)
    return problemText.value
      ? `The verified numbers could not be read: ${problemText.value}`
      : "Loading the verified numbers";
  const beyond =
    marks.ranges.filter(({ last }) => marks.up_to === null || BigInt(last) > BigInt(marks.up_to)).length +
    marks.more_ranges;
  const head =
    marks.up_to === null ? "Verified here from 1 on: none" : `Verified here: 1 to ${formatInteger(marks.up_to)}`;
  return `${head}${beyond ? `, and ${beyond} range${beyond > 1 ? "s" : ""} beyond` : ""}`;
}

function draw(context: CanvasRenderingContext2D, width: number): void {
  const toX = (bits: number) => (bits / BAR_BITS) * width;
  const x = (n: bigint) => toX(log2(n > 0n ? n : 1n));
  context.fillStyle = token("sunken");
  context.fillRect(0, BAR.top, width, BAR.height);
  context.fillStyle = token("line-strong");
  context.fillRect(0, BAR.top + BAR.height - 4, toX(FRONTIER_BITS), 4);
  context.fillStyle = token("good");
  for (const { first, last } of verified.value?.ranges ?? []) {
    const from = x(BigInt(first));
    context.fillRect(from, BAR.top, Math.max(2, x(BigInt(last) + 1n) - from), BAR.height);
  }
  context.strokeStyle = token("ink-soft");
  context.strokeRect(0.5, BAR.top + 0.5, width - 1, BAR.height - 1);
  drawTicks(context, width, toX);
  drawFrame(context, x(range.value.first), x(range.value.end), "ink-soft", 3);
  const now = visibleRange(view.value, limits);
  drawFrame(context, x(now.first), x(now.end), "accent", 0);
}

/** Draw powers of two and the frontier below the bar. */
function drawTicks(context: CanvasRenderingContext2D, width: number, toX: (bits: number) => number): void {
  setFont(context);
  context.textBaseline = "top";
  const top = BAR.top + BAR.height;
  const marks = Array.from({ length: BAR_BITS / 16 + 1 }, (_, step) => 16 * step);
  for (const bits of [...marks.filter((each) => Math.abs(each - FRONTIER_BITS) > 8), FRONTIER_BITS]) {
    const at = Math.min(width - 1, Math.round(toX(bits)));
    context.fillStyle = token("ink-soft");
    context.fillRect(at, bits === FRONTIER_BITS ? BAR.top : top, 1, bits === FRONTIER_BITS ? BAR.height + 5 : 5);
    context.textAlign = bits === 0 ? "left" : bits === BAR_BITS ? "right" : "center";
    const text =
      bits === FRONTIER_BITS
        ? width > 500
          ? `published ${formatPower(2, bits)}`
          : formatPower(2, bits)
        : formatPower(2, bits);
    context.fillText(bits ? text : "1", at, top + 6);
  }
}

export function Coverage() {
  useEffect(() => {
    void loadVerified();
    // a finished job moves the mark a moment later
    let [before, timer] = [finishedCount.peek(), 0];
    const stop = effect(() => {
      const more = finishedCount.value > before;
      before = finishedCount.value;
      if (!more) return;
      clearTimeout(timer);
      timer = window.setTimeout(() => void loadVerified(), 1500);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  const text = describeCoverage();
  const canvas = useCanvas(draw);
  const published = `published by others: all below ${formatPower(2, FRONTIER_BITS)}`;
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

function drawFrame(context: CanvasRenderingContext2D, from: number, to: number, color: string, inset: number): void {
  context.strokeStyle = token(color);
  context.lineWidth = 2;
  context.strokeRect(Math.max(1, from), BAR.top - 2 + inset, Math.max(3, to - from - 1), BAR.height + 4 - 2 * inset);
  context.lineWidth = 1;
}
