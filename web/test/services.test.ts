import { expect, test, vi } from "vitest";

vi.hoisted(() => {
  Object.assign(globalThis, { location: { hash: "", pathname: "/", search: "" }, localStorage: undefined });
});

import type { Service } from "../src/lib/api";
import { Answer, GrowingText, MAX_TEXT_LENGTH } from "../src/pages/cluster/model/playground";
import {
  scalingLimits,
  describeDrain,
  formatModel,
  formatReadiness,
  explainState,
  allowedServiceVerbs,
  canWriteLog,
} from "../src/pages/cluster/model/services";

test("a model is called as it was named, an artifact by the beginning of its id", () => {
  expect(formatModel("tiny")).toBe("tiny");
  expect(formatModel(null)).toBe("");
  expect(formatModel("2ad04d906f75".padEnd(64, "0"))).toBe("2ad04d906f75");
  expect(formatModel("2ad04d906f75")).toBe("2ad04d906f75");
});

const NOW = Date.parse("2026-11-23T10:00:00Z");

function service(more: Partial<Service> = {}): Service {
  return {
    name: "chat",
    tenant: "default",
    engine: "llamacpp",
    model: "tiny",
    state: "ready",
    replicas: 1,
    ready: 1,
    requests: 0,
    created: "2026-11-23T09:00:00Z",
    failures: 0,
    next_start: null,
    last_failure: null,
    running: [],
    ...more,
  } as Service;
}

function replica(state: string, because: string | null = null) {
  return { job_id: `v-${state}`, state, because } as Service["running"][number];
}

test("a state says why, and what comes next", () => {
  expect(explainState(service({ running: [replica("ready")] }), NOW)).toBe("");
  const away = service({
    running: [replica("stopping", "soon"), replica("ready", "not reached from here: no tunnel")],
  });
  expect(explainState(away, NOW)).toBe("A replica is ready, not reached from here: no tunnel.");
  expect(explainState(service({ state: "asleep", replicas: 0, ready: 0 }), NOW)).toContain(
    "The next request starts a replica",
  );
  expect(explainState(service({ state: "stopped" }), NOW)).toContain("until the service is started");
  const waiting = service({ state: "waiting", ready: 0, running: [replica("waiting", "no runner has 8 GPUs free")] });
  expect(explainState(waiting, NOW)).toBe("A replica is waiting: no runner has 8 GPUs free.");
  const two = [replica("starting", "/health does not answer"), replica("unhealthy", "/health answers 500")];
  expect(explainState(service({ running: two, replicas: 2 }), NOW)).toBe(
    "A replica is unhealthy: /health answers 500.",
  );
  expect(explainState(service({ state: "waiting", ready: 0 }), NOW)).toContain("within about two seconds");
  const died = service({ failures: 3, last_failure: "exit code 3", next_start: "2026-11-23T10:00:04Z", ready: 0 });
  expect(explainState(died, NOW)).toMatch(
    /^The last 3 replicas died: exit code 3\. The next one starts in 4.0.s\. See: cluster service logs chat$/,
  );
  expect(explainState({ ...died, failures: 1, next_start: null }, NOW)).toBe(
    "The last replica died: exit code 3. The next one starts now. See: cluster service logs chat",
  );
});

test("what may be done follows from the state", () => {
  const verbs = (state: string) => allowedServiceVerbs({ state });
  expect([verbs("stopped"), verbs("stopping")]).toEqual([["start"], ["start"]]);
  expect([verbs("asleep"), verbs("ready"), verbs("waiting")]).toEqual([
    ["start", "stop"],
    ["restart", "stop"],
    ["restart", "stop"],
  ]);
  expect(formatReadiness({ ready: 1, replicas: 3 })).toBe("1 of 3 ready");
  expect(scalingLimits({ asked: { autoscale: { min: 2, max: 5, target: 4 } } })).toEqual({ min: 2, max: 5 });
  expect(scalingLimits({ asked: { autoscale: null } })).toEqual({ min: 0, max: 100 });
  expect(describeDrain({ requests: 0, asked: {} })).toBe("The service has no active request.");
  expect(describeDrain({ requests: 2, asked: { request_timeout_seconds: 30 } })).toMatch(
    /2 requests now.*over 30.s are cut/,
  );
  expect([canWriteLog({ state: "starting" }), canWriteLog({ state: "waiting" })]).toEqual([true, false]);
});

function frame(told: unknown) {
  return { data: typeof told === "string" ? told : JSON.stringify(told) };
}

function piece(content: unknown, more = {}) {
  return frame({ choices: [{ delta: { content }, ...more }] });
}

test("an answer knows when its first token came, and how fast the others did", () => {
  const answer = new Answer(1000);
  answer.processFrame(piece(null), 1100);
  expect([answer.state, answer.firstSeconds, answer.tokensPerSecond]).toEqual(["asking", undefined, undefined]);
  answer.processFrame(piece("a"), 1500);
  answer.processFrame(piece("b"), 2500);
  expect([answer.state, answer.firstSeconds, answer.tokensPerSecond]).toEqual(["answering", 0.5, 1]);
  answer.processFrame(frame({ choices: [], usage: { completion_tokens: 5 } }), 2600);
  answer.processFrame(frame("[DONE]"), 2600);
  expect([answer.state, answer.content, answer.tokens, answer.tokensPerSecond]).toEqual(["done", "ab", 5, 4]);
  answer.processFrame(piece("late"), 2700);
  expect(answer.content).toBe("ab");
});

test.each([
  ["no JSON", "the engine sent an unreadable answer"],
  ["null", "the engine sent an unreadable answer"],
  ["{", "the engine sent an unreadable answer"],
  [{ error: { message: "the replica broke off" } }, "the replica broke off"],
  [{ error: "full" }, "full"],
  [{ error: { code: 7 } }, "the engine gave no reason"],
])("an answer that ends badly says why: %j", (told, why) => {
  const answer = new Answer(0);
  answer.processFrame(frame(told), 1);
  expect([answer.state, answer.problem]).toEqual(["failed", why]);
});

test.each([
  { choices: {} },
  { choices: [null] },
  { choices: [{ delta: { content: 7 } }] },
  { choices: null },
  { usage: "many" },
  { usage: { completion_tokens: "9" } },
  {},
])("what says nothing changes nothing: %j", (told) => {
  const answer = new Answer(0);
  answer.processFrame(frame(told), 1);
  expect([answer.state, answer.content, answer.tokens]).toEqual(["asking", "", undefined]);
});

test("an answer without an end ends", () => {
  const answer = new Answer(0);
  for (let sent = 0; sent <= MAX_TEXT_LENGTH; sent += 100_000) answer.processFrame(piece("x".repeat(100_000)), 1);
  expect(answer.state).toBe("failed");
});

test("a text that grows changes in its last piece alone, and loses nothing", () => {
  const text = new GrowingText();
  let whole = "";
  for (let number = 0; number < 20_000; number += 1) {
    const word = number % 40 === 39 ? `${number}\n` : `${number} `;
    whole += word;
    text.push(word);
  }
  expect(text.pieces.length).toBeGreaterThan(20);
  expect(Math.max(...text.pieces.map((each) => each.length), text.last.length)).toBeLessThan(8001);
  expect([...text.pieces, text.last].join("\n")).toBe(whole);
  const line = new GrowingText();
  line.push("y".repeat(50_000));
  expect([...line.pieces, line.last].join("")).toBe("y".repeat(50_000));
});
