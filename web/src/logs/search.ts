/** Searches a log for a text, a few milliseconds at a time. */

import type { LogLines } from "./lines";
import { stripStyles } from "./terminal";

/** Maximum number of matches; a more frequent text is not useful. */
export const MAX_HITS = 10_000;
/** Duration of a step in milliseconds, and number of lines between clock checks. */
const STEP_MS = 8;
const LINES_PER_CHECK = 256;

export class LogSearch {
  /** Line numbers of the matches, ascending. */
  readonly hits: number[] = [];
  private nextLine = 0;
  private readonly lowerText: string;

  constructor(readonly searchText: string) {
    this.lowerText = searchText.toLowerCase();
  }

  get isFull(): boolean {
    return this.hits.length >= MAX_HITS;
  }

  /** Search more lines. Returns true when all complete lines (with `hasEnded`, all lines) were searched. */
  step(lines: LogLines, hasEnded: boolean): boolean {
    const until = performance.now() + STEP_MS;
    const end = hasEnded ? lines.count : lines.complete;
    while (this.nextLine < end && !this.isFull) {
      if (this.hasText(lines, this.nextLine)) this.hits.push(this.nextLine);
      this.nextLine += 1;
      if (this.nextLine % LINES_PER_CHECK === 0 && performance.now() > until) return false;
    }
    return true;
  }

  private hasText(lines: LogLines, line: number): boolean {
    const text = lines.text(line);
    return text.length >= this.lowerText.length && stripStyles(text).toLowerCase().includes(this.lowerText);
  }

  /** Return the index in `hits` of the first match at or after a line, or of the last match. */
  nearest(line: number): number {
    const index = this.hits.findIndex((each) => each >= line);
    return index < 0 ? this.hits.length - 1 : index;
  }
}
