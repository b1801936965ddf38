/** Lines of a growing log, stored as bytes with line offsets. Only visible lines are decoded. */

/** Maximum length of a displayed line in bytes; longer lines are split. */
export const MOST_BYTES = 4096;

const NEWLINE = 10;
const RETURN = 13;
const FIRST_BYTES = 1 << 16;

function grown<T extends Uint8Array | Uint32Array>(list: T, length: number): T {
  if (length <= list.length) return list;
  const larger = new (list.constructor as new (size: number) => T)(Math.max(length, 2 * list.length));
  larger.set(list);
  return larger;
}

/** Return True if a line can be split here: not inside a UTF-8 character, unless the bytes are not UTF-8. */
function divides(bytes: Uint8Array, at: number, begun: number): boolean {
  return ((bytes[at] as number) & 0xc0) !== 0x80 || at - begun > MOST_BYTES + 3;
}

export class Lines {
  private bytes = new Uint8Array(FIRST_BYTES);
  /** Offset of the line after each line. */
  private nexts = new Uint32Array(1024);
  /** Number of complete lines, not counting an unfinished last line. */
  private closed = 0;
  private begun = 0;
  /** Notes of the page between lines, keyed by line number. */
  private readonly notes = new Map<number, string>();
  private readonly decoder = new TextDecoder();
  /** Number of stored bytes. */
  size = 0;

  get count(): number {
    return this.closed + (this.begun < this.size ? 1 : 0);
  }

  /** Number of lines that can no longer grow. */
  get complete(): number {
    return this.closed;
  }

  push(piece: Uint8Array): void {
    this.bytes = grown(this.bytes, this.size + piece.length);
    this.bytes.set(piece, this.size);
    const { bytes } = this;
    const end = this.size + piece.length;
    for (let at = this.size; at < end; at += 1) {
      if (bytes[at] === NEWLINE) this.close(at + 1);
      else if (at - this.begun >= MOST_BYTES && divides(bytes, at, this.begun)) this.close(at);
    }
    this.size = end;
  }

  /** Insert a note of the page after the last line. */
  note(text: string): void {
    if (this.begun < this.size) this.close(this.size);
    this.notes.set(this.closed, text);
    this.close(this.size);
  }

  private close(next: number): void {
    this.nexts = grown(this.nexts, this.closed + 1);
    this.nexts[this.closed] = next;
    this.closed += 1;
    this.begun = next;
  }

  /** Return the note at a line number, or undefined for a line of the log. */
  noteAt(line: number): string | undefined {
    return this.notes.get(line);
  }

  /** Return the text of a line as a terminal shows it: text before a carriage return is overwritten. */
  text(line: number): string {
    const begin = line ? (this.nexts[line - 1] as number) : 0;
    let end = line < this.closed ? (this.nexts[line] as number) : this.size;
    if (end > begin && this.bytes[end - 1] === NEWLINE) end -= 1;
    if (end > begin && this.bytes[end - 1] === RETURN) end -= 1;
    if (end <= begin) return "";
    const whole = this.bytes.subarray(begin, end);
    const returned = whole.lastIndexOf(RETURN);
    return this.decoder.decode(returned < 0 ? whole : whole.subarray(returned + 1));
  }

  /** Return all bytes, for a download. */
  all(): Uint8Array {
    return this.bytes.subarray(0, this.size);
  }
}
