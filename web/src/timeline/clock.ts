/** Playback clock that advances simulated time. Pure functions. */

export interface Clock {
  /** Simulated time in µs. */
  time: number;
  isPlaying: boolean;
  /** Speed; at 1, the whole trace takes WHOLE_SECONDS. */
  speed: number;
}

/** Duration of a trace at speed 1 in seconds. */
export const FULL_PLAY_SECONDS = 100;
export const MIN_SPEED = 1,
  MAX_SPEED = 100;

/** Return the simulated µs per second. */
export function playbackRate(speed: number, until: number): number {
  return (speed * until) / FULL_PLAY_SECONDS;
}

/** Return the clock after `ms` milliseconds; it stops at the end. */
export function advanceClock(clock: Clock, until: number, ms: number): Clock {
  if (!clock.isPlaying) return clock;
  const at = Math.min(until, clock.time + (playbackRate(clock.speed, until) * ms) / 1000);
  return { ...clock, time: at, isPlaying: at < until };
}

/** Start or stop the clock; at the end, restart it. */
export function toggleClock(clock: Clock, until: number): Clock {
  return { ...clock, isPlaying: !clock.isPlaying, time: !clock.isPlaying && clock.time >= until ? 0 : clock.time };
}

/** Convert a speed to a slider position from 0 to 100 on a logarithmic scale. */
export function sliderPosition(speed: number): number {
  return Math.round((100 * Math.log(speed / MIN_SPEED)) / Math.log(MAX_SPEED / MIN_SPEED));
}

export function speedAtPosition(position: number): number {
  return Number((MIN_SPEED * (MAX_SPEED / MIN_SPEED) ** (position / 100)).toPrecision(2));
}
