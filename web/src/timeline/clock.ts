/** Playback clock that advances simulated time. Pure functions. */

export interface Clock {
  /** Simulated time in µs. */
  at: number;
  playing: boolean;
  /** Speed; at 1, the whole trace takes WHOLE_SECONDS. */
  speed: number;
}

/** Duration of a trace at speed 1 in seconds. */
export const WHOLE_SECONDS = 100;
export const SLOWEST = 1,
  FASTEST = 100;

/** Return the simulated µs per second. */
export function pace(speed: number, until: number): number {
  return (speed * until) / WHOLE_SECONDS;
}

/** Return the clock after `ms` milliseconds; it stops at the end. */
export function advanced(clock: Clock, until: number, ms: number): Clock {
  if (!clock.playing) return clock;
  const at = Math.min(until, clock.at + (pace(clock.speed, until) * ms) / 1000);
  return { ...clock, at, playing: at < until };
}

/** Start or stop the clock; at the end, restart it. */
export function toggled(clock: Clock, until: number): Clock {
  return { ...clock, playing: !clock.playing, at: !clock.playing && clock.at >= until ? 0 : clock.at };
}

/** Convert a speed to a slider position from 0 to 100 on a logarithmic scale. */
export function slot(speed: number): number {
  return Math.round((100 * Math.log(speed / SLOWEST)) / Math.log(FASTEST / SLOWEST));
}

export function speedAt(place: number): number {
  return Number((SLOWEST * (FASTEST / SLOWEST) ** (place / 100)).toPrecision(2));
}
