/** Colours of jobs: a job has one wherever the page names it, for as long as the worker stream shows it. */

import { signal } from "@preact/signals";
import type { Stream } from "../../../lib/api";
import { placed } from "./spans";

/** Series of the palette, without the grey one, which is of several jobs at once. */
const SERIES = [1, 2, 3, 4, 7, 6, 8];
const GREY = 5;

export interface Colour {
  /** Of --series-N. */
  series: number;
  /** A second way to tell it apart, once all colours are taken. */
  hatched: boolean;
}

const places = signal<ReadonlyMap<string, number>>(new Map());

/** Takes the jobs of a stream that has just come. */
export function takeColours(stream: Stream): void {
  places.value = placed(stream, places.peek());
}

/** Colour of a job; grey for several at once, and undefined for one that the stream does not show. */
export function colourOf(job: string): Colour | undefined {
  if (!job) return { series: GREY, hatched: false };
  const place = places.value.get(job);
  if (place === undefined) return undefined;
  return { series: SERIES[place % SERIES.length] ?? GREY, hatched: Math.floor(place / SERIES.length) % 2 === 1 };
}
