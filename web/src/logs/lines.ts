/** Lines of a growing log, stored as bytes with line offsets. Only visible lines are decoded. */

/** Maximum length of a displayed line in bytes; longer lines are split. */
export const MAX_LINE_BYTES = 4096;

const NEWLINE = 10;
const CARRIAGE_RETURN = 13;
const INITIAL_BYTES = 1 << 16;

function growArray<T extends Uint8Array | Uint32Array>(list: T, length: number): T {
  if (length <= list.length) return list;
  const larger = new (list.constructor as new (size: number) => T)(Math.max(length, 2 * list.length));
  larger.set(list);
  return larger;
}

/** Return True if a line can be split here: not inside a UTF-8 character, unless the bytes are not UTF-8. */
function canSplit(bytes: Uint8Array, at: number, lineStart: number): boolean {
  return ((bytes[at] as number) & 0xc0) !== 0x80 || at - lineStart > MAX_LINE_BYTES + 3;
}

export class LogLines {
  private bytes = new Uint8Array(INITIAL_BYTES);
  /** Offset of the line after each line. */
  private lineEnds = new Uint32Array(1024);
  /** Number of complete lines, not counting an unfinished last line. */
  private completeCount = 0;
  private lastLineStart = 0;
  /** Notes of the page between lines, keyed by line number. */
  private readonly notes = new Map<number, string>();
  private readonly decoder = new TextDecoder();
  /** Number of stored bytes. */
  size = 0;

  get count(): number {
    return this.completeCount + (this.lastLineStart < this.size ? 1 : 0);
  }

  /** Number of lines that can no longer grow. */
  get complete(): number {
    return this.completeCount;
  }

  push(piece: Uint8Array): void {
    this.bytes = growArray(this.bytes, this.size + piece.length);
    this.bytes.set(piece, this.size);
    const { bytes } = this;
    const end = this.size + piece.length;
    for (let at = this.size; at < end; at += 1) {
      if (bytes[at] === NEWLINE) this.endLine(at + 1);
      else if (at - this.lastLineStart >= MAX_LINE_BYTES && canSplit(bytes, at, this.lastLineStart)) this.endLine(at);
    }
    this.size = end;
  }

  /** Insert a note of the page after the last line. */
  addNote(text: string): void {
    if (this.lastLineStart < this.size) this.endLine(this.size);
    this.notes.set(this.completeCount, text);
    this.endLine(this.size);
  }

  private endLine(next: number): void {
    this.lineEnds = growArray(this.lineEnds, this.completeCount + 1);
    this.lineEnds[this.completeCount] = next;
    this.completeCount += 1;
    this.lastLineStart = next;
  }

  /** Return the note at a line number, or undefined for a line of the log. */
  noteAt(line: number): string | undefined {
    return this.notes.get(line);
  }

  /** Return the text of a line as a terminal shows it: text before a carriage return is overwritten. */
  text(line: number): string {
    const begin = line ? (this.lineEnds[line - 1] as number) : 0;
    let end = line < this.completeCount ? (this.lineEnds[line] as number) : this.size;
    if (end > begin && this.bytes[end - 1] === NEWLINE) end -= 1;
    if (end > begin && this.bytes[end - 1] === CARRIAGE_RETURN) end -= 1;
    if (end <= begin) return "";
    const whole = this.bytes.subarray(begin, end);
    const returned = whole.lastIndexOf(CARRIAGE_RETURN);
    return this.decoder.decode(returned < 0 ? whole : whole.subarray(returned + 1));
  }

  /** Return all bytes, for a download. */
  allBytes(): Uint8Array {
    return this.bytes.subarray(0, this.size);
  }
}
