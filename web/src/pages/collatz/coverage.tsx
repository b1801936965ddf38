/** Which numbers are verified, and where the view lies among all that the kind takes. */

import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { log2 } from "./model/number";
import { seen } from "./model/view";
import { get } from "../../lib/api";
import { compact, integer } from "../../lib/format";
import { token } from "../../lib/theme";
import { useCanvas } from "../../ui/canvas";
import { active } from "./model/run";
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
    unknown.value = error instanceof Error ? error.message : String(error);
  }
}

/** The bar ends here: 2^96. */
const BITS = 96;

function words(): string {
  const marks = verified.value;
  if (!marks)
    return unknown.value ? `The verified numbers could not be read: ${unknown.value}` : "Loading the verified numbers";
  const beyond =
    marks.ranges.filter(({ last }) => marks.up_to === null || BigInt(last) > BigInt(marks.up_to)).length +
    marks.more_ranges;
  const head =
    marks.up_to === null ? "No number is verified from 1 on" : `Verified by this cluster: 1 to ${integer(marks.up_to)}`;
  return `${head}${beyond ? `, and ${beyond} range${beyond > 1 ? "s" : ""} beyond` : ""}`;
}

export function Coverage() {
  useEffect(() => {
    void ask();
    // jobs that end move the mark
    return effect(() => {
      if (active.value.length === 0) setTimeout(() => void ask(), 1500);
    });
  }, []);
  const text = words();
  const canvas = useCanvas((context, width, height) => {
    const x = (n: bigint) => (log2(n > 0n ? n : 1n) / BITS) * width;
    context.fillStyle = token("sunken");
    context.fillRect(0, 4, width, height - 8);
    context.fillStyle = token("good");
    for (const { first, last } of verified.value?.ranges ?? []) {
      const from = x(BigInt(first));
      context.fillRect(from, 4, Math.max(1, x(BigInt(last) + 1n) - from), height - 8);
    }
    context.strokeStyle = token("ink-soft");
    context.strokeRect(0.5, 4.5, width - 1, height - 9);
    frame(context, x(range.value.first), x(range.value.end), height, "ink-soft", 3);
    const now = seen(view.value, limits);
    frame(context, x(now.first), x(now.end), height, "accent", 0);
  });
  return (
    <div class="coverage">
      <canvas ref={canvas} role="img" aria-label={`${text}. The bar runs from 1 to 2^96 on a log scale.`} />
      <p class="small soft">
        {text}{" "}
        <span class="axis">
          (bar: 1 to 2^96, log; frame: the view
          {range.value.end > 2n ** 53n ? "" : ` of ${compact(range.value.end - range.value.first)}`})
        </span>
      </p>
    </div>
  );
}

function frame(
  context: CanvasRenderingContext2D,
  from: number,
  to: number,
  height: number,
  colour: string,
  inset: number,
): void {
  context.strokeStyle = token(colour);
  context.lineWidth = 2;
  context.strokeRect(Math.max(1, from), 1 + inset, Math.max(3, to - from - 1), height - 2 - 2 * inset);
  context.lineWidth = 1;
}
