/** Legend of the picture's colors and marks. */

import { formatCompact, formatInteger } from "../../lib/format";
import { isDark } from "../../lib/theme";
import { CLASS_COLORS, cssColor, MIXED_COLOR, viridisColor } from "../../density/color";
import { state } from "./model/state";
import type { Scene } from "./model/scene";

/** The color scale with its limits. */
function ScaleBar({ low, high, text }: { low: string; high: string; text: string }) {
  const stops = Array.from({ length: 13 }, (_, index) => cssColor(viridisColor(index / 12, isDark.value)));
  return (
    <li>
      {text} <span class="num">{low}</span>
      <span class="scale" style={{ background: `linear-gradient(90deg,${stops.join()})` }} />
      <span class="num">{high}</span>
    </li>
  );
}

export function Legend({ scene }: { scene: Scene | undefined }) {
  const look = scene?.colorScale;
  const modulus = Math.max(2, Math.min(8, state.mod.value));
  return (
    <ul class="legend">
      {look?.mode === "count" && scene?.source !== "points" && scene?.source !== "none" && (
        <ScaleBar
          text="numbers a pixel, log"
          low={look.max < 1 ? "0" : formatInteger(Math.max(1, look.min))}
          high={formatCompact(Math.max(1, Math.round(look.max)))}
        />
      )}
      {look?.mode === "value" && <ScaleBar text="bits of the peak" low={String(look.min)} high={String(look.max)} />}
      {look?.mode === "class" &&
        CLASS_COLORS.slice(0, modulus).map((each, residue) => (
          <li key={residue}>
            <svg viewBox="0 0 18 8" aria-hidden="true">
              <rect x="5" width="8" height="8" fill={cssColor(each)} />
            </svg>
            {residue} mod {modulus}
          </li>
        ))}
      {look?.mode === "class" && (scene?.source === "exact" || scene?.source === "sample") && (
        <li>
          <svg viewBox="0 0 18 8" aria-hidden="true">
            <rect x="5" width="8" height="8" fill={`rgb(${MIXED_COLOR.join(",")})`} />
          </svg>
          several
        </li>
      )}
      <li>
        <svg viewBox="0 0 18 12" aria-hidden="true" class="mark-delay">
          <circle cx="9" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="2" />
        </svg>
        delay record
      </li>
      <li>
        <svg viewBox="0 0 18 12" aria-hidden="true" class="mark-path">
          <rect x="4.5" y="1.5" width="9" height="9" fill="none" stroke="currentColor" stroke-width="2" />
        </svg>
        path record
      </li>
      <li>
        <svg viewBox="0 0 18 12" aria-hidden="true">
          <path d="M0 6h18" stroke="currentColor" stroke-width="1.5" stroke-dasharray="6 4" />
        </svg>
        10.43 ln n, expected mean
      </li>
    </ul>
  );
}
