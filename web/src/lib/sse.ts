/** Parser for server-sent events in chunks of text. EventSource cannot send request headers. */

export interface Frame {
  event: string;
  data: string;
  /** Event ID; empty if the event has none. */
  id: string;
}

/** Maximum length of an event in characters; a coordinator never sends longer events. */
const MAX_EVENT_LENGTH = 1 << 22;

export class Parser {
  private rest = "";
  private event = "";
  private id = "";
  private data: string[] = [];
  private size = 0;
  /** Reconnect delay in milliseconds requested by the server; 0 if unspecified. */
  retry = 0;

  /** Return the events completed by this chunk. Throws if an event is too long. */
  push(piece: string): Frame[] {
    const frames: Frame[] = [];
    const text = this.rest + piece;
    // A trailing \r may be the first half of \r\n.
    const heldBack = text.endsWith("\r") ? 1 : 0;
    const lines = text.slice(0, text.length - heldBack).split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? "") + text.slice(text.length - heldBack);
    for (const line of lines) {
      const frame = this.parseLine(line);
      if (frame) frames.push(frame);
    }
    if (this.rest.length + this.size > MAX_EVENT_LENGTH) throw new Error("a message of the event stream is too long");
    return frames;
  }

  private parseLine(line: string): Frame | undefined {
    if (line === "") return this.finishFrame();
    if (line.startsWith(":")) return undefined;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.addData(value);
    else if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  private addData(value: string): void {
    this.data.push(value);
    this.size += value.length;
  }

  private finishFrame(): Frame | undefined {
    const frame = { event: this.event || "message", data: this.data.join("\n"), id: this.id };
    const hasData = this.data.length > 0;
    this.event = this.id = "";
    this.data = [];
    this.size = 0;
    return hasData ? frame : undefined;
  }
}

/** Return True if stream position `left` ("ms-n") is after `right`. */
export function isAfter(left: string, right: string): boolean {
  const [leftMs = 0, leftN = 0] = left.split("-").map(Number);
  const [rightMs = 0, rightN = 0] = right.split("-").map(Number);
  return leftMs === rightMs ? leftN > rightN : leftMs > rightMs;
}
