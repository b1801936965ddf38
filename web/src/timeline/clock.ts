/** Playback: simulated time that goes on with the reader's. Pure. */

export interface Clock {
  /** µs of simulated time. */
  at: number;
  playing: boolean;
  /** 1: the whole trace takes WHOLE_SECONDS. */
  speed: number;
}

/** At speed 1 a trace lasts so long. */
export const WHOLE_SECONDS = 100;
export const SLOWEST = 1,
  FASTEST = 100;

/** Simulated µs per second of the reader's time. */
export function pace(speed: number, until: number): number {
  return (speed * until) / WHOLE_SECONDS;
}

/** The clock after `ms` milliseconds. It stops at the end. */
export function advanced(clock: Clock, until: number, ms: number): Clock {
  if (!clock.playing) return clock;
  const at = Math.min(until, clock.at + (pace(clock.speed, until) * ms) / 1000);
  return { ...clock, at, playing: at < until };
}

/** Starts or stops; at the end it starts anew. */
export function toggled(clock: Clock, until: number): Clock {
  return { ...clock, playing: !clock.playing, at: !clock.playing && clock.at >= until ? 0 : clock.at };
}

/** A slider's place, 0 to 100, for a speed, and back: equal steps multiply. */
export function slot(speed: number): number {
  return Math.round((100 * Math.log(speed / SLOWEST)) / Math.log(FASTEST / SLOWEST));
}

export function speedAt(place: number): number {
  return Number((SLOWEST * (FASTEST / SLOWEST) ** (place / 100)).toPrecision(2));
}
