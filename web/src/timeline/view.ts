/** Which part of time is seen: zooming, panning, ticks. Pure; times are µs. */

export interface View {
  t0: number;
  t1: number;
}

/** The least that can be seen. */
const LEAST = 0.02;
/** Empty room at the ends, as a share of what is seen. */
const MARGIN = 0.02;

/** Moved so that no more than the margin is empty. */
export function kept({ t0, t1 }: View, until: number): View {
  const whole = until * (1 + 2 * MARGIN);
  const width = Math.min(Math.max(t1 - t0, LEAST), whole);
  const low = -until * MARGIN;
  const from = Math.max(low, Math.min(t0, low + whole - width));
  return { t0: from, t1: from + width };
}

export function whole(until: number): View {
  return kept({ t0: -until, t1: 2 * until }, until);
}

/** Factor below 1 shows less; `at` stays where it is. */
export function zoomed(view: View, factor: number, at: number, until: number): View {
  const width = Math.max(LEAST, (view.t1 - view.t0) * factor);
  const share = (at - view.t0) / (view.t1 - view.t0);
  return kept({ t0: at - share * width, t1: at + (1 - share) * width }, until);
}

/** By a share of what is seen. */
export function panned(view: View, share: number, until: number): View {
  const by = share * (view.t1 - view.t0);
  return kept({ t0: view.t0 + by, t1: view.t1 + by }, until);
}

/** A span with some room around it. */
export function around(t0: number, t1: number, until: number): View {
  const room = Math.max(0.1 * (t1 - t0), LEAST);
  return kept({ t0: t0 - room, t1: t1 + room }, until);
}

/** Round times in a view, at most `most` of them; and their step. */
export function ticksOf({ t0, t1 }: View, most: number): { step: number; at: number[] } {
  const rough = (t1 - t0) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10);
  const at: number[] = [];
  for (let number = Math.ceil(t0 / step); number * step <= t1; number += 1) at.push(number * step);
  return { step, at };
}

/** A time on an axis whose ticks are `step` apart, in the unit that suits the step's size. */
export function tickText(at: number, step: number, until: number): string {
  const [size, unit] = until >= 2e6 ? [1e6, "s"] : until >= 2000 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / size) + 1e-9)));
  return `${(at / size).toFixed(digits)}\u202f${unit}`;
}
