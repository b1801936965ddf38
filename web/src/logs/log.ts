/** Log of a unit: loaded completely if stored, followed while its program is running. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { asProblem, getResponse, authorizationHeaders, Problem, parseProblem } from "../lib/api";
import { formatBytes } from "../lib/format";
import { Parser, type Frame } from "../lib/sse";
import { LogLines } from "./lines";

export const STREAMS = ["all", "stdout", "stderr"] as const;
export type StreamName = (typeof STREAMS)[number];

/** Size of a requested chunk in bytes. */
const CHUNK_BYTES = 1 << 20;
/** Minimum interval in milliseconds between redraws of a followed log. */
const DRAW_MS = 100;
/** Interval in milliseconds and number of retries for the log of a program that has just exited. */
const RETRY_MS = 700;
const MAX_RETRIES = 8;
const RECONNECT_MS = 2000;

export interface Log {
  lines: LogLines;
  /** Size of the log in bytes; undefined until it is known. */
  total: number | undefined;
  /** True while the log may grow. */
  isGrowing: boolean;
  /** Error that explains an empty log. */
  problem: Problem | undefined;
}

/** Received part of the log; offsets count bytes of both streams. */
export interface LogPosition {
  attempt: number;
  /** Distinguishes two starts under the same attempt number. */
  run: string;
  /** Offset after the last byte. */
  at: number;
  /** Last-Event-ID for the next connection. */
  id: string;
  hasEnded: boolean;
}

export function startPosition(): LogPosition {
  return { attempt: 0, run: "", at: 0, id: "", hasEnded: false };
}

/** Data of an event: output, or a number of dropped bytes. */
interface OutputEvent {
  attempt?: number;
  run?: string;
  offset?: number;
  stream?: string;
  text?: string;
  data?: string;
  bytes?: number;
}

function decodeOutput({ data, text }: OutputEvent): Uint8Array {
  if (data === undefined) return new TextEncoder().encode(text ?? "");
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}

/** Append an event's output to the lines, without duplicates and with notes about gaps. */
export function appendFrame(lines: LogLines, position: LogPosition, frame: Frame, stream: StreamName): void {
  const event = JSON.parse(frame.data) as OutputEvent;
  if (frame.id) position.id = frame.id;
  if (frame.event === "end") position.hasEnded = true;
  else if (frame.event === "dropped") noteGap(lines, position, event.bytes ?? 0);
  else if (frame.event === "output") appendOutput(lines, position, event, stream);
}

function noteGap(lines: LogLines, position: LogPosition, count: number): void {
  lines.addNote(`${formatBytes(count)} were not sent; the log has them once the program has ended`);
  position.at += count;
}

function appendOutput(lines: LogLines, position: LogPosition, event: OutputEvent, stream: StreamName): void {
  const { attempt = position.attempt, run = position.run } = event;
  if (attempt < position.attempt) return;
  if (attempt !== position.attempt || run !== position.run) {
    if (position.attempt || attempt > 1)
      lines.addNote(attempt === position.attempt ? `attempt ${attempt}, started again` : `attempt ${attempt}`);
    Object.assign(position, { attempt, run, at: 0 });
  }
  const output = decodeOutput(event);
  const offset = event.offset ?? position.at;
  if (offset > position.at) noteGap(lines, position, offset - position.at);
  const knownBytes = position.at - offset;
  position.at = Math.max(position.at, offset + output.length);
  if (knownBytes < output.length && (stream === "all" || event.stream === stream))
    lines.push(output.subarray(knownBytes));
}

function sleep(ms: number, control: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    control.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Load and follow a log until `stop` is called. `isRunning` returns true while its program may still write. */
export function openLog(
  job: string,
  unit: number,
  stream: StreamName,
  isRunning: () => boolean,
): { log: ReadonlySignal<Log>; stop: () => void } {
  const control = new AbortController();
  const log = signal<Log>({ lines: new LogLines(), total: undefined, isGrowing: true, problem: undefined });
  const path = `/api/jobs/${job}/logs/${unit}`;
  void loadLog(log, path, stream, isRunning, control.signal).catch((error: unknown) => {
    if (control.signal.aborted) return;
    const problem = asProblem(error);
    log.value = { ...log.peek(), isGrowing: false, problem };
  });
  return { log, stop: () => control.abort() };
}

async function loadLog(
  log: Signal<Log>,
  path: string,
  stream: StreamName,
  isRunning: () => boolean,
  control: AbortSignal,
): Promise<void> {
  if (isRunning()) {
    await followLog(log, `${path}/follow`, stream, control);
    // The followed output may have gaps, so the stored log replaces it when it is complete.
    for (let tries = 0; tries < MAX_RETRIES && !control.aborted; tries += 1) {
      if (await loadStoredLog(log, path, stream, control, false).then(returnTrue, returnFalse)) return;
      await sleep(RETRY_MS, control);
    }
    log.value = { ...log.peek(), isGrowing: false };
  } else await loadStoredLog(log, path, stream, control, true);
}

const returnTrue = () => true;
const returnFalse = () => false;

/** Load the stored log in chunks, and show it immediately or when it is complete. */
async function loadStoredLog(
  log: Signal<Log>,
  path: string,
  stream: StreamName,
  control: AbortSignal,
  isShownEarly: boolean,
): Promise<void> {
  const lines = new LogLines();
  let total = 1;
  let from = 0;
  while (from < total) {
    const answer = await getResponse(path, { stream, from, limit: CHUNK_BYTES }, control);
    total = Number(answer.headers.get("X-Log-Bytes") ?? 0);
    const piece = new Uint8Array(await answer.arrayBuffer());
    lines.push(piece);
    from += piece.length;
    if (!piece.length) break;
    if (isShownEarly) log.value = { lines, total, isGrowing: from < total, problem: undefined };
  }
  log.value = { lines, total: from, isGrowing: false, problem: undefined };
}

/** Read the events of a running program until they report its exit. */
async function followLog(log: Signal<Log>, path: string, stream: StreamName, control: AbortSignal): Promise<void> {
  const { lines } = log.peek();
  const position = startPosition();
  let timer = 0;
  const draw = () => {
    timer = 0;
    if (!control.aborted) log.value = { lines, total: undefined, isGrowing: true, problem: undefined };
  };
  const listen = (frame: Frame) => {
    appendFrame(lines, position, frame, stream);
    timer ||= setTimeout(draw, DRAW_MS) as unknown as number;
  };
  try {
    while (!position.hasEnded && !control.aborted) {
      await readEvents(path, control, position, listen).catch(rethrowPermanent);
      if (!position.hasEnded) await sleep(RECONNECT_MS, control);
    }
  } finally {
    clearTimeout(timer);
    if (!control.aborted) draw();
  }
}

/** Rethrow errors that a retry cannot fix, such as a missing log; a rate limit can be retried. */
function rethrowPermanent(error: unknown): void {
  const status = error instanceof Problem ? error.status : 0;
  if (status >= 400 && status < 500 && status !== 429) throw error;
}

async function readEvents(
  path: string,
  control: AbortSignal,
  position: LogPosition,
  listen: (frame: Frame) => void,
): Promise<void> {
  const since: Record<string, string> = position.id ? { "Last-Event-ID": position.id } : {};
  const headers = { ...authorizationHeaders(), Accept: "text/event-stream", ...since };
  const answer = await fetch(path, { headers, cache: "no-store", signal: control });
  if (answer.status === 204) {
    position.hasEnded = true;
    return;
  }
  if (!answer.ok || !answer.body) throw await parseProblem(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    for (const frame of parser.push(piece.value)) listen(frame);
}
