/** Steps by residue n mod m. */

import { useEffect } from "preact/hooks";
import { formatInteger } from "../../lib/format";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { EXACT_MOST, exactOf, isExact, learnt, need } from "./model/data";
import { letters, xTicks, yTicks, type Box } from "./model/plot";
import { Whole } from "./fields";
import { usePicture } from "./model/save";
import { choose, countedRange, state } from "./model/state";

interface Residue {
  residue: number;
  count: number;
  sum: number;
  least: number;
  most: number;
  where: bigint;
}

const MOST_MODULUS = 64;

function byResidue(modulus: number): Residue[] {
  const { first, end } = countedRange();
  const rows = Array.from(
    { length: modulus },
    (_, residue): Residue => ({ residue, count: 0, sum: 0, least: Infinity, most: -1, where: 0n }),
  );
  for (const exact of exactOf({ first, end })) {
    const shift = Number(exact.start % BigInt(modulus));
    const from = Math.max(0, Number(first - exact.start));
    const to = Math.min(exact.delays.length, Number(end - exact.start));
    for (let place = from; place < to; place += 1) {
      const row = rows[(shift + place) % modulus] as Residue;
      const delay = exact.delays[place] as number;
      row.count += 1;
      row.sum += delay;
      if (delay < row.least) row.least = delay;
      if (delay > row.most) {
        row.most = delay;
        row.where = exact.start + BigInt(place);
      }
    }
  }
  return rows.filter((row) => row.count > 0);
}

function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  rows: readonly Residue[],
  modulus: number,
): void {
  letters(context);
  const box: Box = { left: 48, top: 10, width: width - 58, height: height - 40 };
  const means = rows.map((row) => row.sum / row.count);
  const high = Math.max(...means) * 1.04;
  const y = (value: number) => box.top + box.height * (1 - value / high);
  yTicks(context, box, 0, high, (value) => String(Math.round(value)));
  xTicks(context, box, 0, modulus, formatInteger, `n mod ${modulus}`);
  const wide = box.width / modulus;
  for (const [place, { residue }] of rows.entries()) {
    context.fillStyle = token("series-1");
    context.fillRect(
      box.left + residue * wide,
      y(means[place] as number),
      Math.max(1, wide - (wide > 4 ? 2 : 0)),
      y(0) - y(means[place] as number),
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
  const wanted = countedRange();
  const modulus = Math.max(2, Math.min(MOST_MODULUS, Math.round(state.mod.value)));
  useEffect(() => need(wanted), [String(wanted.first), String(wanted.end)]);
  learnt.value;
  const small = Number(wanted.end - wanted.first) <= EXACT_MOST;
  const rows = small && isExact(wanted) ? byResidue(modulus) : [];
  const best = rows.reduce<Residue | undefined>(
    (top, row) => (!top || row.sum / row.count > top.sum / top.count ? row : top),
    undefined,
  );
  const words = best
    ? `Mean steps by n mod ${modulus} of ${formatInteger(wanted.first)} to ${formatInteger(wanted.end - 1n)}: ` +
      `most for ${best.residue} mod ${modulus}, ${(best.sum / best.count).toFixed(2)}; mean of all ` +
      `${(rows.reduce((sum, row) => sum + row.sum, 0) / rows.reduce((sum, row) => sum + row.count, 0)).toFixed(2)}, ` +
      `dashed`
    : small
      ? "Being computed in this page"
      : `Residues need every number: select at most ${formatInteger(EXACT_MOST)} in the graph`;
  const canvas = usePicture(
    "residues",
    `Collatz: mean steps by n mod ${modulus}`,
    `${words}.`,
    (context, width, height) => void (rows.length && draw(context, width, height, rows, modulus)),
  );
  return (
    <div class="stack">
      <div class="row">
        <Whole name="mod" text="m" least={2} most={MOST_MODULUS} />
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
            row.least,
            row.most,
            formatInteger(row.where),
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
          <Button class="link num" onClick={() => choose(best.where)}>
            {formatInteger(best.where)}
          </Button>{" "}
          in the class with the greatest mean, {best.most} steps.
        </p>
      )}
    </div>
  );
}
