/** The worker stream as rectangles: lanes from top to bottom, time from left to right. Pure. */

import type { Span, Stream } from "../../../lib/api";

export interface Frame {
  left: number;
  top: number;
  width: number;
  /** Height of one lane. */
  lane: number;
  /** Seconds since 1970 at the left and the right edge. */
  from: number;
  to: number;
}

export function laneHeight(lanes: number): number {
  return Math.max(4, Math.min(22, Math.floor(300 / Math.max(1, lanes))));
}

export function xOf(time: number, frame: Frame): number {
  return frame.left + ((time - frame.from) / (frame.to - frame.from)) * frame.width;
}

/** Left and right edge in pixels; undefined when it is outside. What is open reaches to the end. */
export function edges(span: Span, frame: Frame): [number, number] | undefined {
  const end = span.open ? frame.to : span.end;
  if (end <= frame.from || span.start >= frame.to) return undefined;
  const from = Math.max(frame.left, xOf(span.start, frame));
  return [from, Math.max(from + 1, Math.min(frame.left + frame.width, xOf(end, frame)))];
}

/** The span at a place, the latest where several are as near as a pixel. */
export function spanAt(stream: Stream, x: number, y: number, frame: Frame): Span | undefined {
  const lane = Math.floor((y - frame.top) / frame.lane);
  return stream.spans.findLast((span) => {
    const box = span.lane === lane ? edges(span, frame) : undefined;
    return box && x >= box[0] - 1 && x <= box[1] + 1;
  });
}

/** Share of the time from `from` to `to` that each lane was computing. */
export function busy(stream: Stream, from: number, to: number): number[] {
  const seconds = stream.lanes.map(() => 0);
  for (const span of stream.spans) {
    const inside = Math.min(span.open ? to : span.end, to) - Math.max(span.start, from);
    if (inside > 0) seconds[span.lane] = (seconds[span.lane] ?? 0) + inside;
  }
  return seconds.map((each) => Math.min(1, each / Math.max(1e-9, to - from)));
}

/** The kinds that a stream shows, always in one order; null is several at once. */
export function kindsOf(stream: Stream): string[] {
  return [...new Set(stream.spans.map((span) => span.type ?? "several kinds"))].sort();
}
