/** Steps by residue n mod m. */

import { useEffect } from "preact/hooks";
import { formatInteger } from "../../lib/format";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { MAX_EXACT, getExact, isExact, dataVersion, requestValues } from "./model/data";
import { setFont, drawXTicks, drawYTicks, type Box } from "./model/plot";
import { IntegerField } from "./fields";
import { usePicture } from "./model/savable-pictures";
import { showTrajectory, countedRange, state } from "./model/state";

interface ResidueStatistics {
  residue: number;
  count: number;
  sum: number;
  min: number;
  max: number;
  maxAt: bigint;
}

const MAX_MODULUS = 64;

function groupByResidue(modulus: number): ResidueStatistics[] {
  const { first, end } = countedRange();
  const rows = Array.from(
    { length: modulus },
    (_, residue): ResidueStatistics => ({ residue, count: 0, sum: 0, min: Infinity, max: -1, maxAt: 0n }),
  );
  for (const exact of getExact({ first, end })) {
    const shift = Number(exact.start % BigInt(modulus));
    const from = Math.max(0, Number(first - exact.start));
    const to = Math.min(exact.delays.length, Number(end - exact.start));
    for (let index = from; index < to; index += 1) {
      const row = rows[(shift + index) % modulus] as ResidueStatistics;
      const delay = exact.delays[index] as number;
      row.count += 1;
      row.sum += delay;
      if (delay < row.min) row.min = delay;
      if (delay > row.max) {
        row.max = delay;
        row.maxAt = exact.start + BigInt(index);
      }
    }
  }
  return rows.filter((row) => row.count > 0);
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  rows: readonly ResidueStatistics[],
  modulus: number,
): void {
  setFont(context);
  const box: Box = { left: 48, top: 10, width: width - 58, height: height - 40 };
  const means = rows.map((row) => row.sum / row.count);
  const high = Math.max(...means) * 1.04;
  const y = (value: number) => box.top + box.height * (1 - value / high);
  drawYTicks(context, box, 0, high, (value) => String(Math.round(value)));
  drawXTicks(context, box, 0, modulus, formatInteger, `n mod ${modulus}`);
  const wide = box.width / modulus;
  for (const [index, { residue }] of rows.entries()) {
    context.fillStyle = token("series-1");
    context.fillRect(
      box.left + residue * wide,
      y(means[index] as number),
      Math.max(1, wide - (wide > 4 ? 2 : 0)),
      y(0) - y(means[index] as number),
    );
  }
  const mean = rows.reduce((sum, row) => sum + row.sum, 0) / rows.reduce((sum, row) => sum + row.count, 0);
  context.setLineDash([6, 4]);
  context.strokeStyle = token("ink");
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(box.left, y(mean));
  context.lineTo(box.left + box.width, y(mean));
  context.stroke();
  context.setLineDash([]);
}

export function ResiduesView() {
  const range = countedRange();
  const modulus = Math.max(2, Math.min(MAX_MODULUS, Math.round(state.mod.value)));
  useEffect(() => requestValues(range), [String(range.first), String(range.end)]);
  dataVersion.value;
  const small = Number(range.end - range.first) <= MAX_EXACT;
  const rows = small && isExact(range) ? groupByResidue(modulus) : [];
  const best = rows.reduce<ResidueStatistics | undefined>(
    (top, row) => (!top || row.sum / row.count > top.sum / top.count ? row : top),
    undefined,
  );
  const words = best
    ? `Mean steps by n mod ${modulus} of ${formatInteger(range.first)} to ${formatInteger(range.end - 1n)}: ` +
      `most for ${best.residue} mod ${modulus}, ${(best.sum / best.count).toFixed(2)}; mean of all ` +
      `${(rows.reduce((sum, row) => sum + row.sum, 0) / rows.reduce((sum, row) => sum + row.count, 0)).toFixed(2)}, ` +
      `dashed`
    : small
      ? "Being computed in this page"
      : `Residues need every number: select at most ${formatInteger(MAX_EXACT)} in the graph`;
  const canvas = usePicture(
    "residues",
    `Collatz: mean steps by n mod ${modulus}`,
    `${words}.`,
    (context, width, height) => void (rows.length && draw(context, width, height, rows, modulus)),
  );
  return (
    <div class="stack">
      <div class="row">
        <IntegerField name="mod" text="m" min={2} max={MAX_MODULUS} />
        <span class="small soft">{words}.</span>
      </div>
      <Figure
        summary={`${words}.`}
        getTable={() => ({
          head: ["n mod m", "numbers", "mean steps", "least", "most", "at"],
          rows: rows.map((row) => [
            row.residue,
            formatInteger(row.count),
            (row.sum / row.count).toFixed(3),
            row.min,
            row.max,
            formatInteger(row.maxAt),
          ]),
        })}
      >
        <div class="plot-space">
          {rows.length ? (
            <Canvas canvasRef={canvas} summary={`${words}.`} class="fill" />
          ) : (
            <div class="empty">
              <h3>{words}</h3>
            </div>
          )}
        </div>
      </Figure>
      {best && (
        <p class="small">
          Longest of all:{" "}
          <Button class="link num" onClick={() => showTrajectory(best.maxAt)}>
            {formatInteger(best.maxAt)}
          </Button>{" "}
          in the class with the greatest mean, {best.max} steps.
        </p>
      )}
    </div>
  );
}
