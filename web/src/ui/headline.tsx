/** The two or three figures that a page is about: large, each with what it was lately. */

import { Button } from "./button";
import { sparks } from "./spark";

export interface Headline {
  label: string;
  /** The number as people read it. */
  value: string;
  /** Small, after the value: its unit, or "of 8". */
  after?: string;
  /** What it means, or more of it, in words; shown under the pointer. */
  hint?: string;
  /** What it was lately, oldest first; null: not known. */
  lately?: readonly (number | null)[];
  tone?: "bad" | "warn" | "soft";
  /** Shows more of it. */
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

/** What a figure was lately, from zero; a hole stays a hole. It says nothing to who cannot see it: the value does. */
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
