/** A model's streamed answer from /v1. Pure functions except for `converse`. */

import { authorizationHeaders, parseProblem } from "../../../lib/api";
import { Parser, type Frame } from "../../../lib/sse";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface Choices {
  /** Maximum number of tokens of the answer; unset for the engine's default. */
  max_tokens?: number;
  temperature?: number;
}

/** Length in characters at which a paragraph is finished, and at which it is cut within a line. */
const LONG = 2000;
const LONGEST = 8000;
/** Maximum number of an answer's characters that the page keeps. */
export const MOST_TEXT = 4_000_000;

/** A growing text, split into finished pieces and a last piece, so that only the last piece is laid out again. */
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

/** Outcome of one question; times are in milliseconds of the same clock. */
export class Answer {
  readonly text = new Growing();
  /** Complete text of the answer. */
  content = "";
  state: AnswerState = "asking";
  problem = "";
  /** Times of the first and last piece of text. */
  first: number | undefined;
  last = 0;
  /** Number of frames with text; most engines send one frame per token. */
  frames = 0;
  /** Number of tokens reported by the engine at the end. */
  tokens: number | undefined;
  /** True if the answer reached the maximum number of tokens. */
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
    if (this.content.length > MOST_TEXT) this.end("failed", "the answer is too long for this page");
  }

  /** Process a frame of the stream. */
  take({ data }: Pick<Frame, "data">, at: number): void {
    const told = parsed(data);
    if (this.over) return;
    if (data.trim() === "[DONE]") this.end("done");
    else if (!told) this.end("failed", "the engine sent an unreadable answer");
    else if (told.error) this.end("failed", reasonOf(told.error));
    else this.read(told, at);
  }

  private read({ choices, usage }: Told, at: number): void {
    const choice = Array.isArray(choices) ? choices[0] : undefined;
    this.say(choice?.delta?.content ?? choice?.message?.content ?? choice?.text, at);
    this.cut ||= choice?.finish_reason === "length";
    if (typeof usage?.completion_tokens === "number") this.tokens = usage.completion_tokens;
  }

  /** Return the seconds until the first text; undefined before. */
  get firstSeconds(): number | undefined {
    return this.first === undefined ? undefined : (this.first - this.began) / 1000;
  }

  /** Return the tokens per second after the first token. */
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

/** Ask a model for the next turn of a conversation, and call `draw` on each change. Rejects with the API's error. */
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
    headers: { ...authorizationHeaders(), "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ model, messages, ...choices, stream: true, stream_options: { include_usage: true } }),
    cache: "no-store",
    signal,
  });
  if (!reply.ok || !reply.body) throw await parseProblem(reply);
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
  answer.end("failed", "the stream ended before the answer was complete");
  draw();
}
