/** The main values of a page in large type, each with its recent history. */

import { Button } from "./button";
import { sparks } from "./spark";

export interface Headline {
  label: string;
  /** The formatted number. */
  value: string;
  /** Small text after the value, such as its unit or "of 8". */
  after?: string;
  /** Explanation in a tooltip. */
  hint?: string;
  /** Recent values, oldest first; null if unknown. */
  lately?: readonly (number | null)[];
  tone?: "bad" | "warn" | "soft";
  /** Action that shows more details. */
  onOpen?: () => void;
}

export function Headlines({ label, list }: { label: string; list: readonly Headline[] }) {
  return (
    <section class="headlines ages" aria-label={label}>
      <dl>
        {list.map((each) => (
          <div key={each.label} title={each.hint}>
            <dt>{each.label}</dt>
            <dd class={each.tone ?? ""}>
              <Value of={each} />
              {each.lately && <Sparkline values={each.lately} />}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Value({ of: { value, after, onOpen } }: { of: Headline }) {
  const text = (
    <>
      {value}
      {after && " "}
      {after && <small>{after}</small>}
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
const [WIDE, TALL] = [96, 24];

/** Recent values from zero, with gaps. Screen readers skip the sparkline and read the value. */
export function Sparkline({ values }: { values: readonly (number | null)[] }) {
  const { line, area, end } = sparks(values, WIDE, TALL);
  if (!line) return null;
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDE} ${TALL}`} width={WIDE} height={TALL} aria-hidden="true">
      <path class="area" d={area} />
      <path class="line" d={line} />
      {end && <circle cx={end.x} cy={end.y} r="2" />}
    </svg>
  );
}
