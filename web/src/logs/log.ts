/** The log of a unit: read whole once it is there, followed while its program runs. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { asProblem, answered, authorization, Problem, problemOf } from "../lib/api";
import { bytes as sized } from "../lib/format";
import { Parser, type Frame } from "../lib/sse";
import { Lines } from "./lines";

export const STREAMS = ["all", "stdout", "stderr"] as const;
export type StreamName = (typeof STREAMS)[number];

/** Bytes of one answer. */
const PIECE = 1 << 20;
/** Redraws while a log is followed. */
const DRAW_MS = 100;
/** Milliseconds after which a log is asked for again whose program has just ended, and how often. */
const AGAIN_MS = 700;
const MOST_AGAIN = 8;
const BACK_MS = 2000;

export interface Log {
  lines: Lines;
  /** Bytes of the log, once it is known. */
  total: number | undefined;
  /** True while more may come. */
  going: boolean;
  /** Why there is nothing. */
  problem: Problem | undefined;
}

/** What was heard so far; offsets count the bytes of both streams. */
export interface Heard {
  attempt: number;
  /** Tells apart what was started twice under one attempt. */
  run: string;
  /** The offset behind the last byte. */
  at: number;
  /** Last-Event-ID of the next connection. */
  id: string;
  ended: boolean;
}

export function unheard(): Heard {
  return { attempt: 0, run: "", at: 0, id: "", ended: false };
}

/** Data of an event: of an output, or of bytes that were dropped. */
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

/** Puts what an event tells into the lines: nothing twice, and what is missing is said. */
export function take(lines: Lines, heard: Heard, frame: Frame, wanted: StreamName): void {
  const told = JSON.parse(frame.data) as Told;
  if (frame.id) heard.id = frame.id;
  if (frame.event === "end") heard.ended = true;
  else if (frame.event === "dropped") missed(lines, heard, told.bytes ?? 0);
  else if (frame.event === "output") written(lines, heard, told, wanted);
}

function missed(lines: Lines, heard: Heard, count: number): void {
  lines.note(`${sized(count)} were not sent; the log has them once the program has ended`);
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

/** A log that fills itself until `stop`. `running` says whether its program may still write. */
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
    // What was followed may have gaps: the log that is kept takes its place once all of it is here.
    for (let tries = 0; tries < MOST_AGAIN && !control.aborted; tries += 1) {
      if (await whole(log, path, stream, control, false).then(yes, no)) return;
      await sleep(AGAIN_MS, control);
    }
    log.value = { ...log.peek(), going: false };
  } else await whole(log, path, stream, control, true);
}

const yes = () => true;
const no = () => false;

/** Reads the log that is kept, piece by piece; `shown` at once, or when all of it is here. */
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
    const answer = await answered(path, { stream, from, limit: PIECE }, control);
    total = Number(answer.headers.get("X-Log-Bytes") ?? 0);
    const piece = new Uint8Array(await answer.arrayBuffer());
    lines.push(piece);
    from += piece.length;
    if (!piece.length) break;
    if (shown) log.value = { lines, total, going: from < total, problem: undefined };
  }
  log.value = { lines, total: from, going: false, problem: undefined };
}

/** Reads the events of a program that runs until they say that it has ended. */
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

/** What is not there, or not allowed, does not come by asking again; what is too much now may. */
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
  const headers = { ...authorization(), Accept: "text/event-stream", ...since };
  const answer = await fetch(path, { headers, cache: "no-store", signal: control });
  if (answer.status === 204) {
    heard.ended = true;
    return;
  }
  if (!answer.ok || !answer.body) throw await problemOf(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    for (const frame of parser.push(piece.value)) listen(frame);
}
