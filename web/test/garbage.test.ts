import { expect, test, vi } from "vitest";
import { get } from "../src/lib/api";
import { connection, connectionProblem, reconnect, startLive } from "../src/lib/live";
import { Parser } from "../src/lib/sse";

const SNAPSHOT = { stream: "1-0", time: 1, jobs: [], workers: [], gpus: [], queues: [], alerts: [], status: {} };
const STREAM = "text/event-stream; charset=utf-8";
/** Error message for responses that do not come from a coordinator. */
const WORDS = "what answers /api/events is not the cluster; look at what stands before it";

let said = "";
let kind = STREAM;
let snapshot = JSON.stringify(SNAPSHOT);
const streams: AbortSignal[] = [];

function answer(path: string, options: RequestInit): Response {
  if (!path.startsWith("/api/events")) return new Response(snapshot);
  streams.push(options.signal as AbortSignal);
  const body = new ReadableStream<Uint8Array>({
    start: (to) => to.enqueue(new TextEncoder().encode(said)),
  });
  return new Response(body, { headers: { "Content-Type": kind } });
}

async function again(): Promise<void> {
  reconnect();
  await vi.waitFor(() => expect(connection.value).toBe("reconnecting"));
}

test("what is no stream of a coordinator's is told, its connection given back, and asked for again", async () => {
  const nothing = () => undefined;
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("document", { hidden: false, addEventListener: nothing });
  vi.stubGlobal("addEventListener", nothing);
  vi.stubGlobal("navigator", { onLine: true });
  vi.stubGlobal("fetch", async (path: string, options: RequestInit) => {
    const given = answer(path, options);
    Object.defineProperty(given, "url", { value: `http://127.0.0.1${path}` });
    return given;
  });
  for (const garbage of [
    "data: {oops\n\n",
    "event: fleet\ndata: null\n\n",
    "x".repeat(5_000_000),
    "data: 7\n\ndata: ]\n\n",
  ]) {
    const before = streams.length;
    said = garbage;
    connectionProblem.value = "";
    startLive();
    reconnect();
    await vi.waitFor(() => expect(connectionProblem.value, garbage.slice(0, 30)).toBe(WORDS), 10_000);
    expect(streams.length).toBe(before + 1);
    expect(streams.at(-1)?.aborted, "nobody reads it, nobody keeps it").toBe(true);
  }
  [kind, said] = ["text/html", "<h1>Log in to the wireless network</h1>"];
  connectionProblem.value = "";
  await again();
  await vi.waitFor(() => expect(connectionProblem.value).toBe(WORDS), 10_000);
  snapshot = "<h1>Log in to the wireless network</h1>";
  await again();
  await vi.waitFor(() => expect(connectionProblem.value).toBe(WORDS.replace("events", "snapshot")), 10_000);
  await expect(get("/api/jobs")).rejects.toThrow("what answers /api/jobs is not the cluster");
});

test("a frame that never ends is refused before it fills the memory", () => {
  const parser = new Parser();
  const pieces = () => {
    for (let piece = 0; piece < 100; piece += 1) parser.push(`data: ${"x".repeat(100_000)}\n`);
  };
  expect(pieces).toThrow("too long");
});
