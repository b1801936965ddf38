import { afterEach, expect, test, vi } from "vitest";
import { get } from "../src/lib/api";
import { age, clusterTime, connection, lastMessageAt, now, connectionProblem, startLive } from "../src/lib/live";

const SNAPSHOT = {
  stream: "1-0",
  time: Date.now() / 1000 + 7200,
  jobs: [],
  workers: [],
  gpus: [],
  queues: [],
  alerts: [],
  status: {},
};

/** Prefix of request paths that the fake cluster answers with 503. Its event stream stays open. */
let unwell = "nothing";
let open: ReadableStreamDefaultController<Uint8Array> | undefined;

function answer(path: string, options: RequestInit): Response {
  if (path.startsWith(unwell))
    return new Response(JSON.stringify({ detail: "redis cannot be reached" }), { status: 503 });
  if (!path.startsWith("/api/events")) return new Response(JSON.stringify(SNAPSHOT));
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      open = controller;
    },
  });
  options.signal?.addEventListener("abort", () => open?.error(options.signal?.reason));
  // The clock of the coordinator's machine is wrong.
  const date = new Date(Date.now() - 3600_000).toUTCString();
  return new Response(body, { headers: { "Content-Type": "text/event-stream; charset=utf-8", Date: date } });
}

afterEach(() => vi.unstubAllGlobals());

test("an answer that the cluster is not well ends the colors, though its stream is still open", async () => {
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
  startLive();
  await vi.waitFor(() => expect(connection.value).toBe("live"));
  expect(age.value).toBe("live");
  expect(Math.abs(clusterTime(0) - 7200_000), "known without any job").toBeLessThan(60_000);
  // A single failed request does not prove an unhealthy cluster, so the page requests the snapshot.
  const before = open;
  unwell = "/api/stream";
  await get("/api/stream").catch(() => undefined);
  await new Promise((done) => setTimeout(done, 50));
  expect([connection.value, open]).toEqual(["live", before]);
  unwell = "/api/";
  await get("/api/stream").catch(() => undefined);
  await vi.waitFor(() => expect(connection.value).toBe("reconnecting"));
  expect([age.value, connectionProblem.value]).toEqual(["lost", "503: redis cannot be reached"]);
  expect(lastMessageAt.value).toBeLessThanOrEqual(now.value + 1000);
});
