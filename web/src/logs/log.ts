/** Log of a unit: loaded completely if stored, followed while its program is running. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { asProblem, getResponse, authorizationHeaders, Problem, parseProblem } from "../lib/api";
import { formatBytes } from "../lib/format";
import { Parser, type Frame } from "../lib/sse";
import { Lines } from "./lines";

export const STREAMS = ["all", "stdout", "stderr"] as const;
export type StreamName = (typeof STREAMS)[number];

/** Size of a requested chunk in bytes. */
const PIECE = 1 << 20;
/** Minimum interval in milliseconds between redraws of a followed log. */
const DRAW_MS = 100;
/** Interval in milliseconds and number of retries for the log of a program that has just exited. */
const AGAIN_MS = 700;
const MOST_AGAIN = 8;
const BACK_MS = 2000;

export interface Log {
  lines: Lines;
  /** Size of the log in bytes; undefined until it is known. */
  total: number | undefined;
  /** True while the log may grow. */
  going: boolean;
  /** Error that explains an empty log. */
  problem: Problem | undefined;
}

/** Received part of the log; offsets count bytes of both streams. */
export interface Heard {
  attempt: number;
  /** Distinguishes two starts under the same attempt number. */
  run: string;
  /** Offset after the last byte. */
  at: number;
  /** Last-Event-ID for the next connection. */
  id: string;
  ended: boolean;
}

export function unheard(): Heard {
  return { attempt: 0, run: "", at: 0, id: "", ended: false };
}

/** Data of an event: output, or a number of dropped bytes. */
interface Told {
  attempt?: number;
  run?: string;
  offset?: number;
  stream?: string;
  text?: string;
  data?: string;
  bytes?: number;
}

function bytesOf({ data, text }: Told): Uint8Array {
  if (data === undefined) return new TextEncoder().encode(text ?? "");
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}

/** Append an event's output to the lines, without duplicates and with notes about gaps. */
export function take(lines: Lines, heard: Heard, frame: Frame, wanted: StreamName): void {
  const told = JSON.parse(frame.data) as Told;
  if (frame.id) heard.id = frame.id;
  if (frame.event === "end") heard.ended = true;
  else if (frame.event === "dropped") missed(lines, heard, told.bytes ?? 0);
  else if (frame.event === "output") written(lines, heard, told, wanted);
}

function missed(lines: Lines, heard: Heard, count: number): void {
  lines.note(`${formatBytes(count)} were not sent; the log has them once the program has ended`);
  heard.at += count;
}

function written(lines: Lines, heard: Heard, told: Told, wanted: StreamName): void {
  const { attempt = heard.attempt, run = heard.run } = told;
  if (attempt < heard.attempt) return;
  if (attempt !== heard.attempt || run !== heard.run) {
    if (heard.attempt || attempt > 1)
      lines.note(attempt === heard.attempt ? `attempt ${attempt}, started again` : `attempt ${attempt}`);
    Object.assign(heard, { attempt, run, at: 0 });
  }
  const all = bytesOf(told);
  const offset = told.offset ?? heard.at;
  if (offset > heard.at) missed(lines, heard, offset - heard.at);
  const known = heard.at - offset;
  heard.at = Math.max(heard.at, offset + all.length);
  if (known < all.length && (wanted === "all" || told.stream === wanted)) lines.push(all.subarray(known));
}

function sleep(ms: number, control: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    control.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}

/** Load and follow a log until `stop` is called. `running` returns true while its program may still write. */
export function openLog(
  job: string,
  unit: number,
  stream: StreamName,
  running: () => boolean,
): { log: ReadonlySignal<Log>; stop: () => void } {
  const control = new AbortController();
  const log = signal<Log>({ lines: new Lines(), total: undefined, going: true, problem: undefined });
  const path = `/api/jobs/${job}/logs/${unit}`;
  void fill(log, path, stream, running, control.signal).catch((error: unknown) => {
    if (control.signal.aborted) return;
    const problem = asProblem(error);
    log.value = { ...log.peek(), going: false, problem };
  });
  return { log, stop: () => control.abort() };
}

async function fill(
  log: Signal<Log>,
  path: string,
  stream: StreamName,
  running: () => boolean,
  control: AbortSignal,
): Promise<void> {
  if (running()) {
    await followed(log, `${path}/follow`, stream, control);
    // The followed output may have gaps, so the stored log replaces it when it is complete.
    for (let tries = 0; tries < MOST_AGAIN && !control.aborted; tries += 1) {
      if (await whole(log, path, stream, control, false).then(yes, no)) return;
      await sleep(AGAIN_MS, control);
    }
    log.value = { ...log.peek(), going: false };
  } else await whole(log, path, stream, control, true);
}

const yes = () => true;
const no = () => false;

/** Load the stored log in chunks, and show it immediately or when it is complete. */
async function whole(
  log: Signal<Log>,
  path: string,
  stream: StreamName,
  control: AbortSignal,
  shown: boolean,
): Promise<void> {
  const lines = new Lines();
  let total = 1;
  let from = 0;
  while (from < total) {
    const answer = await getResponse(path, { stream, from, limit: PIECE }, control);
    total = Number(answer.headers.get("X-Log-Bytes") ?? 0);
    const piece = new Uint8Array(await answer.arrayBuffer());
    lines.push(piece);
    from += piece.length;
    if (!piece.length) break;
    if (shown) log.value = { lines, total, going: from < total, problem: undefined };
  }
  log.value = { lines, total: from, going: false, problem: undefined };
}

/** Read the events of a running program until they report its exit. */
async function followed(log: Signal<Log>, path: string, stream: StreamName, control: AbortSignal): Promise<void> {
  const { lines } = log.peek();
  const heard = unheard();
  let timer = 0;
  const draw = () => {
    timer = 0;
    if (!control.aborted) log.value = { lines, total: undefined, going: true, problem: undefined };
  };
  const listen = (frame: Frame) => {
    take(lines, heard, frame, stream);
    timer ||= setTimeout(draw, DRAW_MS) as unknown as number;
  };
  try {
    while (!heard.ended && !control.aborted) {
      await connection(path, control, heard, listen).catch(missing);
      if (!heard.ended) await sleep(BACK_MS, control);
    }
  } finally {
    clearTimeout(timer);
    if (!control.aborted) draw();
  }
}

/** Rethrow errors that a retry cannot fix, such as a missing log; a rate limit can be retried. */
function missing(error: unknown): void {
  const status = error instanceof Problem ? error.status : 0;
  if (status >= 400 && status < 500 && status !== 429) throw error;
}

async function connection(
  path: string,
  control: AbortSignal,
  heard: Heard,
  listen: (frame: Frame) => void,
): Promise<void> {
  const since: Record<string, string> = heard.id ? { "Last-Event-ID": heard.id } : {};
  const headers = { ...authorizationHeaders(), Accept: "text/event-stream", ...since };
  const answer = await fetch(path, { headers, cache: "no-store", signal: control });
  if (answer.status === 204) {
    heard.ended = true;
    return;
  }
  if (!answer.ok || !answer.body) throw await parseProblem(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    for (const frame of parser.push(piece.value)) listen(frame);
}
