/** An answer of a model as it streams in from /v1. Pure but for `converse`. */

import { authorization, problemOf } from "../../../lib/api";
import { Parser, type Frame } from "../../../lib/sse";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface Choices {
  /** Most tokens of the answer; without it, as many as the engine gives. */
  max_tokens?: number;
  temperature?: number;
}

/** Characters after which a paragraph is drawn no more, and after which it ends even within a line. */
const LONG = 2000;
const LONGEST = 8000;
/** Characters of an answer that a page keeps. */
export const MOST_TEXT = 4_000_000;

/** A text that grows, in pieces that do not change any more and one that does: a page lays out that one alone. */
export class Growing {
  readonly pieces: string[] = [];
  last = "";
  length = 0;

  push(text: string): void {
    this.last += text;
    this.length += text.length;
    while (this.last.length > LONG) {
      const line = this.last.indexOf("\n", LONG);
      const end = line >= 0 && line < LONGEST ? line : this.last.length > LONGEST ? LONGEST : -1;
      if (end < 0) return;
      this.pieces.push(this.last.slice(0, end));
      // The end of a piece is the end of a line.
      this.last = this.last.slice(this.last[end] === "\n" ? end + 1 : end);
    }
  }
}

export type AnswerState = "asking" | "answering" | "done" | "stopped" | "failed";

/** What came of one question; times are milliseconds of one clock. */
export class Answer {
  readonly text = new Growing();
  /** All of it, as it came. */
  content = "";
  state: AnswerState = "asking";
  problem = "";
  /** When the first and the last piece of text came. */
  first: number | undefined;
  last = 0;
  /** Frames with text, which most engines send one a token. */
  frames = 0;
  /** Tokens as the engine counts them; told at the end. */
  tokens: number | undefined;
  /** It ended because it had as many tokens as it may have. */
  cut = false;

  constructor(readonly began: number) {}

  get over(): boolean {
    return this.state === "done" || this.state === "stopped" || this.state === "failed";
  }

  end(state: AnswerState, problem = ""): void {
    if (this.over) return;
    this.state = state;
    this.problem = problem;
  }

  private say(text: unknown, at: number): void {
    if (typeof text !== "string" || !text) return;
    this.first ??= at;
    this.last = at;
    this.frames += 1;
    this.state = "answering";
    this.content += text;
    this.text.push(text);
    if (this.content.length > MOST_TEXT) this.end("failed", "the answer is longer than a page can show");
  }

  /** Takes one frame of the stream. */
  take({ data }: Pick<Frame, "data">, at: number): void {
    const told = parsed(data);
    if (this.over) return;
    if (data.trim() === "[DONE]") this.end("done");
    else if (!told) this.end("failed", "the engine sent what cannot be read");
    else if (told.error) this.end("failed", reasonOf(told.error));
    else this.read(told, at);
  }

  private read({ choices, usage }: Told, at: number): void {
    const choice = Array.isArray(choices) ? choices[0] : undefined;
    this.say(choice?.delta?.content ?? choice?.message?.content ?? choice?.text, at);
    this.cut ||= choice?.finish_reason === "length";
    if (typeof usage?.completion_tokens === "number") this.tokens = usage.completion_tokens;
  }

  /** Seconds until the first text; undefined until then. */
  get firstSeconds(): number | undefined {
    return this.first === undefined ? undefined : (this.first - this.began) / 1000;
  }

  /** Tokens after the first one, by the time that they took. */
  get speed(): number | undefined {
    const count = (this.tokens ?? this.frames) - 1;
    const passed = (this.last - (this.first ?? this.last)) / 1000;
    return count > 0 && passed > 0 ? count / passed : undefined;
  }
}

interface Told {
  error?: { message?: unknown } | string;
  choices?: {
    delta?: { content?: unknown };
    message?: { content?: unknown };
    text?: unknown;
    finish_reason?: unknown;
  }[];
  usage?: { completion_tokens?: unknown } | null;
}

function reasonOf(error: { message?: unknown } | string): string {
  const said = typeof error === "string" ? error : error.message;
  return typeof said === "string" && said ? said : "the engine gave no reason";
}

function parsed(data: string): Told | undefined {
  try {
    const told: unknown = JSON.parse(data);
    return typeof told === "object" && told !== null ? (told as Told) : undefined;
  } catch {
    return undefined;
  }
}

/** Asks a model for the next turn of a talk; `draw` is called with each change. Rejects with what the API refused. */
export async function converse(
  model: string,
  messages: readonly Message[],
  choices: Choices,
  answer: Answer,
  draw: () => void,
  signal: AbortSignal,
): Promise<void> {
  const reply = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { ...authorization(), "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ model, messages, ...choices, stream: true, stream_options: { include_usage: true } }),
    cache: "no-store",
    signal,
  });
  if (!reply.ok || !reply.body) throw await problemOf(reply);
  if (!reply.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    answer.take({ data: await reply.text() }, performance.now());
    answer.end("done");
    return draw();
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  for (let piece = await reader.read(); !piece.done && !answer.over; piece = await reader.read()) {
    for (const frame of parser.push(piece.value)) answer.take(frame, performance.now());
    draw();
  }
  if (answer.over) void reader.cancel().catch(() => undefined);
  answer.end("failed", "the stream ended before the answer did");
  draw();
}
