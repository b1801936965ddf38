/** The visible time range: zooming, panning and ticks. Pure functions; times are in µs. */

export interface View {
  t0: number;
  t1: number;
}

/** Minimum visible time. */
const MIN_VISIBLE_TIME = 0.02;
/** Margin at the ends, as a share of the visible time. */
const MARGIN = 0.02;

/** Move a view so that no more than the margin is empty. */
export function clampView({ t0, t1 }: View, until: number): View {
  const whole = until * (1 + 2 * MARGIN);
  const width = Math.min(Math.max(t1 - t0, MIN_VISIBLE_TIME), whole);
  const low = -until * MARGIN;
  const from = Math.max(low, Math.min(t0, low + whole - width));
  return { t0: from, t1: from + width };
}

export function fullView(until: number): View {
  return clampView({ t0: -until, t1: 2 * until }, until);
}

/** Zoom around `at`; a factor below 1 shows less. */
export function zoomView(view: View, factor: number, at: number, until: number): View {
  const width = Math.max(MIN_VISIBLE_TIME, (view.t1 - view.t0) * factor);
  const share = (at - view.t0) / (view.t1 - view.t0);
  return clampView({ t0: at - share * width, t1: at + (1 - share) * width }, until);
}

/** Move by a share of the visible time. */
export function panView(view: View, share: number, until: number): View {
  const by = share * (view.t1 - view.t0);
  return clampView({ t0: view.t0 + by, t1: view.t1 + by }, until);
}

/** Return a view of a time range with some margin. */
export function viewAround(t0: number, t1: number, until: number): View {
  const margin = Math.max(0.1 * (t1 - t0), MIN_VISIBLE_TIME);
  return clampView({ t0: t0 - margin, t1: t1 + margin }, until);
}

/** Return up to `max` round times in a view, and their interval. */
export function viewTicks({ t0, t1 }: View, max: number): { step: number; at: number[] } {
  const rough = (t1 - t0) / Math.max(1, max);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10);
  const at: number[] = [];
  for (let number = Math.ceil(t0 / step); number * step <= t1; number += 1) at.push(number * step);
  return { step, at };
}

/** Format a time on an axis whose ticks are `step` apart, in a suitable unit. */
export function formatTick(at: number, step: number, until: number): string {
  const [size, unit] = until >= 2e6 ? [1e6, "s"] : until >= 2000 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / size) + 1e-9)));
  return `${(at / size).toFixed(digits)}\u202f${unit}`;
}
