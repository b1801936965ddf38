/** A model's streamed answer from /v1. Pure functions except for `requestAnswer`. */

import { authorizationHeaders, parseProblem } from "../../../lib/api";
import { Parser, type Frame } from "../../../lib/sse";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface RequestOptions {
  /** Maximum number of tokens of the answer; unset for the engine's default. */
  max_tokens?: number;
  temperature?: number;
}

/** Length in characters at which a paragraph is finished, and at which it is cut within a line. */
const PIECE_LENGTH = 2000;
const MAX_PIECE_LENGTH = 8000;
/** Maximum number of an answer's characters that the page keeps. */
export const MAX_TEXT_LENGTH = 4_000_000;

/** A growing text, split into finished pieces and a last piece, so that only the last piece is laid out again. */
export class GrowingText {
  readonly pieces: string[] = [];
  last = "";
  length = 0;

  push(text: string): void {
    this.last += text;
    this.length += text.length;
    while (this.last.length > PIECE_LENGTH) {
      const line = this.last.indexOf("\n", PIECE_LENGTH);
      const end =
        line >= 0 && line < MAX_PIECE_LENGTH ? line : this.last.length > MAX_PIECE_LENGTH ? MAX_PIECE_LENGTH : -1;
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
  readonly text = new GrowingText();
  /** Complete text of the answer. */
  content = "";
  state: AnswerState = "asking";
  problem = "";
  /** Times of the first and last piece of text. */
  firstTextAt: number | undefined;
  lastTextAt = 0;
  /** Number of frames with text; most engines send one frame per token. */
  frames = 0;
  /** Number of tokens reported by the engine at the end. */
  tokens: number | undefined;
  /** True if the answer reached the maximum number of tokens. */
  isCut = false;

  constructor(readonly began: number) {}

  get hasEnded(): boolean {
    return this.state === "done" || this.state === "stopped" || this.state === "failed";
  }

  end(state: AnswerState, problem = ""): void {
    if (this.hasEnded) return;
    this.state = state;
    this.problem = problem;
  }

  private addText(text: unknown, at: number): void {
    if (typeof text !== "string" || !text) return;
    this.firstTextAt ??= at;
    this.lastTextAt = at;
    this.frames += 1;
    this.state = "answering";
    this.content += text;
    this.text.push(text);
    if (this.content.length > MAX_TEXT_LENGTH) this.end("failed", "the answer is too long for this page");
  }

  /** Process a frame of the stream. */
  processFrame({ data }: Pick<Frame, "data">, at: number): void {
    const chunk = parseChunk(data);
    if (this.hasEnded) return;
    if (data.trim() === "[DONE]") this.end("done");
    else if (!chunk) this.end("failed", "the engine sent an unreadable answer");
    else if (chunk.error) this.end("failed", errorText(chunk.error));
    else this.processChunk(chunk, at);
  }

  private processChunk({ choices, usage }: CompletionChunk, at: number): void {
    const choice = Array.isArray(choices) ? choices[0] : undefined;
    this.addText(choice?.delta?.content ?? choice?.message?.content ?? choice?.text, at);
    this.isCut ||= choice?.finish_reason === "length";
    if (typeof usage?.completion_tokens === "number") this.tokens = usage.completion_tokens;
  }

  /** Return the seconds until the first text; undefined before. */
  get firstSeconds(): number | undefined {
    return this.firstTextAt === undefined ? undefined : (this.firstTextAt - this.began) / 1000;
  }

  /** Return the tokens per second after the first token. */
  get tokensPerSecond(): number | undefined {
    const count = (this.tokens ?? this.frames) - 1;
    const passed = (this.lastTextAt - (this.firstTextAt ?? this.lastTextAt)) / 1000;
    return count > 0 && passed > 0 ? count / passed : undefined;
  }
}

interface CompletionChunk {
  error?: { message?: unknown } | string;
  choices?: {
    delta?: { content?: unknown };
    message?: { content?: unknown };
    text?: unknown;
    finish_reason?: unknown;
  }[];
  usage?: { completion_tokens?: unknown } | null;
}

function errorText(error: { message?: unknown } | string): string {
  const message = typeof error === "string" ? error : error.message;
  return typeof message === "string" && message ? message : "the engine gave no reason";
}

function parseChunk(data: string): CompletionChunk | undefined {
  try {
    const chunk: unknown = JSON.parse(data);
    return typeof chunk === "object" && chunk !== null ? (chunk as CompletionChunk) : undefined;
  } catch {
    return undefined;
  }
}

/** Ask a model for the next turn of a conversation, and call `draw` on each change. Rejects with the API's error. */
export async function requestAnswer(
  model: string,
  messages: readonly Message[],
  choices: RequestOptions,
  answer: Answer,
  draw: () => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { ...authorizationHeaders(), "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ model, messages, ...choices, stream: true, stream_options: { include_usage: true } }),
    cache: "no-store",
    signal,
  });
  if (!response.ok || !response.body) throw await parseProblem(response);
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    answer.processFrame({ data: await response.text() }, performance.now());
    answer.end("done");
    return draw();
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  for (let piece = await reader.read(); !piece.done && !answer.hasEnded; piece = await reader.read()) {
    for (const frame of parser.push(piece.value)) answer.processFrame(frame, performance.now());
    draw();
  }
  if (answer.hasEnded) void reader.cancel().catch(() => undefined);
  answer.end("failed", "the stream ended before the answer was complete");
  draw();
}
