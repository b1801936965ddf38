/** The main values of a page in large type, each with its recent history. */

import { Button } from "./button";
import { createSparkline } from "./sparkline";

export interface Headline {
  label: string;
  /** The formatted number. */
  value: string;
  /** Small text after the value, such as its unit or "of 8". */
  suffix?: string;
  /** Explanation in a tooltip. */
  hint?: string;
  /** Recent values, oldest first; null if unknown. */
  history?: readonly (number | null)[];
  tone?: "bad" | "warn" | "soft";
  /** Action that shows more details. */
  onOpen?: () => void;
}

export function Headlines({ label, list }: { label: string; list: readonly Headline[] }) {
  return (
    <section class="headlines ages" aria-label={label}>
      <dl>
        {list.map((headline) => (
          <div key={headline.label} title={headline.hint}>
            <dt>{headline.label}</dt>
            <dd class={headline.tone ?? ""}>
              <HeadlineValue headline={headline} />
              {headline.history && <Sparkline values={headline.history} />}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function HeadlineValue({ headline: { value, suffix, onOpen } }: { headline: Headline }) {
  const text = (
    <>
      {value}
      {suffix && " "}
      {suffix && <small>{suffix}</small>}
    </>
  );
  if (!onOpen) return <span class="value">{text}</span>;
  return (
    <Button class="link value" onClick={onOpen}>
      {text}
    </Button>
  );
}

/** Size of a sparkline in pixels. */
const [SPARKLINE_WIDTH, SPARKLINE_HEIGHT] = [96, 24];

/** Recent values from zero, with gaps. Screen readers skip the sparkline and read the value. */
export function Sparkline({ values }: { values: readonly (number | null)[] }) {
  const { line, area, end } = createSparkline(values, SPARKLINE_WIDTH, SPARKLINE_HEIGHT);
  if (!line) return null;
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${SPARKLINE_WIDTH} ${SPARKLINE_HEIGHT}`}
      width={SPARKLINE_WIDTH}
      height={SPARKLINE_HEIGHT}
      aria-hidden="true"
    >
      <path class="area" d={area} />
      <path class="line" d={line} />
      {end && <circle cx={end.x} cy={end.y} r="2" />}
    </svg>
  );
}
