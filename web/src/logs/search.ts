/** Searches a log for a text, a few milliseconds at a time. */

import type { Lines } from "./lines";
import { plain } from "./terminal";

/** Maximum number of matches; a more frequent text is not useful. */
export const MOST_HITS = 10_000;
/** Duration of a step in milliseconds, and number of lines between clock checks. */
const STEP_MS = 8;
const BETWEEN = 256;

export class Search {
  /** Line numbers of the matches, ascending. */
  readonly hits: number[] = [];
  private next = 0;
  private readonly sought: string;

  constructor(readonly wanted: string) {
    this.sought = wanted.toLowerCase();
  }

  get full(): boolean {
    return this.hits.length >= MOST_HITS;
  }

  /** Search more lines. Returns true when all complete lines (with `whole`, all lines) were searched. */
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

  /** Return the index in `hits` of the first match at or after a line, or of the last match. */
  nearest(line: number): number {
    const place = this.hits.findIndex((each) => each >= line);
    return place < 0 ? this.hits.length - 1 : place;
  }
}
