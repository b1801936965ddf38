import { afterEach, expect, test, vi } from "vitest";
import { runInSlot, STREAM_SLOTS } from "../src/lib/stream-slots";

/** Return fake browser locks, which all tabs share. */
function browser(): LockManager {
  const held = new Set<string>();
  const request = async (name: string, _: LockOptions, act: (lock: Lock | null) => Promise<unknown>) => {
    if (held.has(name)) return act(null);
    held.add(name);
    try {
      return await act({ name, mode: "exclusive" } as Lock);
    } finally {
      held.delete(name);
    }
  };
  return { request } as unknown as LockManager;
}

function over(protocol: string, locks: LockManager | undefined = browser()) {
  vi.stubGlobal("navigator", { locks });
  vi.spyOn(performance, "getEntriesByType").mockReturnValue([{ nextHopProtocol: protocol }] as never);
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

/** Return a fake stream that stays open until the test ends it. */
function stream() {
  let [end, fail]: [() => void, (why: Error) => void] = [vi.fn(), vi.fn()];
  const ended = new Promise<void>((done, failed) => {
    [end, fail] = [done, failed];
  });
  const act = vi.fn(() => ended);
  return { act, end, fail, of: runInSlot(act) };
}

test("a tab without a place is told at once, and has one when another tab gives its own back", async () => {
  over("http/1.1");
  const streams = Array.from({ length: STREAM_SLOTS }, stream);
  await vi.waitFor(() => expect(streams.every(({ act }) => act.mock.calls.length === 1)).toBe(true));
  const late = vi.fn(async () => undefined);
  expect(await runInSlot(late)).toBe(false);
  expect(late).not.toHaveBeenCalled();
  streams[2]?.end();
  expect(await streams[2]?.of).toBe(true);
  expect(await runInSlot(late)).toBe(true);
  expect(late).toHaveBeenCalledOnce();
});

test("a stream that breaks says why, and gives its place back", async () => {
  over("http/1.1");
  const streams = Array.from({ length: STREAM_SLOTS }, stream);
  await vi.waitFor(() => expect(streams[STREAM_SLOTS - 1]?.act).toHaveBeenCalledOnce());
  streams[0]?.fail(new Error("lost"));
  await expect(streams[0]?.of).rejects.toThrow("lost");
  expect(await runInSlot(async () => undefined)).toBe(true);
});

test.each([
  ["h2", browser()],
  ["http/1.1", undefined],
])("over %s with locks %s every tab has a stream", async (protocol, locks) => {
  over(protocol);
  vi.stubGlobal("navigator", { locks });
  const streams = Array.from({ length: STREAM_SLOTS + 3 }, stream);
  for (const { act, end, of } of streams) {
    expect(act).toHaveBeenCalledOnce();
    end();
    expect(await of).toBe(true);
  }
});
