/** Server-sent events from text as it arrives, in whatever pieces. EventSource would send no headers. */

export interface Frame {
  event: string;
  data: string;
  /** Empty when the frame had none. */
  id: string;
}

/** Characters of a frame at most: who sends more is no coordinator. */
const MOST = 1 << 22;

export class Parser {
  private rest = "";
  private event = "";
  private id = "";
  private data: string[] = [];
  private size = 0;
  /** Milliseconds that the server asks us to wait before coming back; 0: not said. */
  retry = 0;

  /** Frames that this piece completes. Throws where one is longer than any of a coordinator's. */
  push(piece: string): Frame[] {
    const frames: Frame[] = [];
    const text = this.rest + piece;
    // A \r at the very end may be half of \r\n.
    const held = text.endsWith("\r") ? 1 : 0;
    const lines = text.slice(0, text.length - held).split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? "") + text.slice(text.length - held);
    for (const line of lines) {
      const frame = this.line(line);
      if (frame) frames.push(frame);
    }
    if (this.rest.length + this.size > MOST) throw new Error("a frame of the stream is too long");
    return frames;
  }

  private line(line: string): Frame | undefined {
    if (line === "") return this.finish();
    if (line.startsWith(":")) return undefined;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.take(value);
    else if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  private take(value: string): void {
    this.data.push(value);
    this.size += value.length;
  }

  private finish(): Frame | undefined {
    const frame = { event: this.event || "message", data: this.data.join("\n"), id: this.id };
    const whole = this.data.length > 0;
    this.event = this.id = "";
    this.data = [];
    this.size = 0;
    return whole ? frame : undefined;
  }
}

/** True when stream position `left` ("ms-n") comes after `right`. */
export function after(left: string, right: string): boolean {
  const [leftMs = 0, leftN = 0] = left.split("-").map(Number);
  const [rightMs = 0, rightN = 0] = right.split("-").map(Number);
  return leftMs === rightMs ? leftN > rightN : leftMs > rightMs;
}
