/** Lines of a log that grows: bytes as they came, and where each line begins. Text is made of what is looked at. */

/** A longer line is shown in pieces, so that no line is too wide to be drawn. */
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

/** True where a line may be cut: not inside a character, unless these are no characters at all. */
function divides(bytes: Uint8Array, at: number, begun: number): boolean {
  return ((bytes[at] as number) & 0xc0) !== 0x80 || at - begun > MOST_BYTES + 3;
}

export class Lines {
  private bytes = new Uint8Array(FIRST_BYTES);
  /** Where the line after each begins. */
  private nexts = new Uint32Array(1024);
  /** Lines that are complete; one more may have begun. */
  private closed = 0;
  private begun = 0;
  /** What the page says between lines, by their number. */
  private readonly notes = new Map<number, string>();
  private readonly decoder = new TextDecoder();
  /** Bytes of the log that are here. */
  size = 0;

  get count(): number {
    return this.closed + (this.begun < this.size ? 1 : 0);
  }

  /** Lines that nothing is added to any more. */
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

  /** A line of the page's own, between the last line and the next. */
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

  /** Says what the page itself says there; undefined for a line of the log. */
  noteAt(line: number): string | undefined {
    return this.notes.get(line);
  }

  /**
   * The text of a line as a terminal leaves it: what stands before a carriage return was written over.
   */
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

  /** All bytes, for a file. */
  all(): Uint8Array {
    return this.bytes.subarray(0, this.size);
  }
}
