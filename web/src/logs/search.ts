/** Lines of a log that hold a text, found a few milliseconds at a time. */

import type { Lines } from "./lines";
import { plain } from "./terminal";

/** Lines kept; a text that is in more is no help. */
export const MOST_HITS = 10_000;
/** Milliseconds of a step, and lines between two looks at the clock. */
const STEP_MS = 8;
const BETWEEN = 256;

export class Search {
  /** Numbers of lines, ascending. */
  readonly hits: number[] = [];
  private next = 0;
  private readonly sought: string;

  constructor(readonly wanted: string) {
    this.sought = wanted.toLowerCase();
  }

  get full(): boolean {
    return this.hits.length >= MOST_HITS;
  }

  /** Looks at some more lines; true when all that are complete, or `whole`, were looked at. */
  step(lines: Lines, whole: boolean): boolean {
    const until = performance.now() + STEP_MS;
    const end = whole ? lines.count : lines.complete;
    while (this.next < end && !this.full) {
      if (this.holds(lines, this.next)) this.hits.push(this.next);
      this.next += 1;
      if (this.next % BETWEEN === 0 && performance.now() > until) return false;
    }
    return true;
  }

  private holds(lines: Lines, line: number): boolean {
    const text = lines.text(line);
    return text.length >= this.sought.length && plain(text).toLowerCase().includes(this.sought);
  }

  /** The place in `hits` of the first line at or after one; the last where there is none. */
  nearest(line: number): number {
    const place = this.hits.findIndex((each) => each >= line);
    return place < 0 ? this.hits.length - 1 : place;
  }
}
