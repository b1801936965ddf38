/** Streaming parser of Chrome traces: events arrive in batches, so the whole text is never parsed at once. */

export interface TraceEvent {
  ph: string;
  ts: number;
  dur?: number;
  tid?: number;
  cat?: string;
  name?: string;
  args?: Record<string, unknown>;
}

const QUOTE = 34,
  BACKSLASH = 92,
  COMMA = 44,
  OPEN_BRACKET = 91,
  CLOSE_BRACKET = 93,
  OPEN_BRACE = 123,
  CLOSE_BRACE = 125;

/** Incremental scanner that cuts a text after every event. Call `push` for each piece, then `finish`. */
export class TraceScanner {
  private head = "";
  private rest = "";
  private position = 0;
  private depth = 0;
  private isInString = false;
  private state: "head" | "events" | "tail" = "head";

  constructor(private readonly onEvents: (events: TraceEvent[]) => void) {}

  push(text: string): void {
    if (this.state === "tail") this.rest += text;
    else if (this.state === "events") this.scan(this.rest + text);
    else this.findEvents(text);
  }

  /** Return the fields outside the events. Throws if the text is not a trace. */
  finish(): Record<string, unknown> {
    if (this.state !== "tail") throw new Error("this is not a Chrome trace: it has no complete list named traceEvents");
    return JSON.parse(this.head + this.rest) as Record<string, unknown>;
  }

  private findEvents(text: string): void {
    this.head += text;
    const start = /^\s*\[|"traceEvents"\s*:\s*\[/.exec(this.head);
    if (!start) return;
    const begin = start.index + start[0].length;
    const bare = start[0].trim() === "[";
    const body = this.head.slice(begin);
    this.head = bare ? '{"traceEvents":[' : this.head.slice(0, begin);
    this.isBareList = bare;
    this.state = "events";
    this.scan(body);
  }

  /** True if the file is only the list of events, which the format allows. */
  private isBareList = false;

  private scan(text: string): void {
    let cut = 0;
    for (let at = this.position; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (this.isInString) {
        if (code === BACKSLASH) at += 1;
        else if (code === QUOTE) this.isInString = false;
      } else if (code === QUOTE) this.isInString = true;
      else if (code === OPEN_BRACE || code === OPEN_BRACKET) this.depth += 1;
      else if (code === CLOSE_BRACE || (code === CLOSE_BRACKET && this.depth > 0)) {
        this.depth -= 1;
        if (this.depth === 0) cut = at + 1;
      } else if (code === CLOSE_BRACKET) {
        this.endEvents(text, at);
        return;
      }
    }
    this.parseEvents(text.slice(0, cut));
    this.rest = text.slice(cut);
    // A backslash at the end escapes the first character of the next piece.
    this.position = this.isInString && endsInEscape(text) ? this.rest.length - 1 : this.rest.length;
  }

  private endEvents(text: string, at: number): void {
    this.parseEvents(text.slice(0, at));
    this.state = "tail";
    this.rest = `]${this.isBareList ? "}" : text.slice(at + 1)}`;
  }

  private parseEvents(text: string): void {
    let begin = 0;
    while (begin < text.length && (text.charCodeAt(begin) === COMMA || text.charCodeAt(begin) <= 32)) begin += 1;
    if (begin < text.length) this.onEvents(JSON.parse(`[${text.slice(begin)}]`) as TraceEvent[]);
  }
}

/** Return True if a text ends inside an escape sequence. */
function endsInEscape(text: string): boolean {
  let count = 0;
  while (text.charCodeAt(text.length - 1 - count) === BACKSLASH) count += 1;
  return count % 2 === 1;
}

/** Return all events of a byte stream and the other fields. */
export async function scanTrace(
  stream: ReadableStream<Uint8Array>,
  onEvents: (events: TraceEvent[]) => void,
): Promise<Record<string, unknown>> {
  const scanner = new TraceScanner(onEvents);
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    scanner.push(decoder.decode(value, { stream: !done }));
    if (done) return scanner.finish();
  }
}
