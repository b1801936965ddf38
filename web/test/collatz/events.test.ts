import { beforeEach, expect, test, vi } from "vitest";

vi.stubGlobal("location", { hash: "", href: "http://cluster/" });
vi.stubGlobal("addEventListener", () => undefined);
const {
  formatLines: asText,
  CAPACITY,
  clearLines: clear,
  droppedCount: dropped,
  isStar,
  lines,
  addLine: log,
  restoreLines: restore,
  matchingLines: shown,
} = await import("../../src/pages/collatz/model/events");
const { state } = await import("../../src/pages/collatz/model/state");

const settled = () => new Promise<void>((done) => queueMicrotask(done));

beforeEach(() => {
  clear();
  [state.find.value, state.stars.value, state.length.value] = ["", false, ""];
});

test("a star for more than 100 steps, or a peak above 100 n", () => {
  expect(isStar(27n, 111, 9232n)).toBe(true);
  expect(isStar(1n, 100, 100n)).toBe(false);
  expect(isStar(1n, 101)).toBe(true);
  expect(isStar(2n ** 70n, 0, 100n * 2n ** 70n + 1n)).toBe(true);
});

test("lines with a star are marked in the text, and shown alone when asked", async () => {
  log("number", "27: 111 steps", { steps: 111, star: true });
  log("number", "3: 7 steps", { steps: 7 });
  await settled();
  expect(
    asText(lines.value)
      .split("\n")
      .map((line) => line[25]),
  ).toEqual(["*", " ", undefined]);
  state.stars.value = true;
  expect(shown.value.map((line) => line.text)).toEqual(["27: 111 steps"]);
});

test("lines are found by text and by class of length", async () => {
  for (const steps of [5, 40, 77, 118]) log("number", `${steps} steps`, { steps });
  await settled();
  state.find.value = "7 STEPS";
  expect(shown.value.map((line) => line.steps)).toEqual([77]);
  state.find.value = "";
  state.length.value = "over 100";
  expect(shown.value.map((line) => line.steps)).toEqual([118]);
});

test("the log is bounded, says what it dropped, and comes back after Clear", async () => {
  for (let count = 0; count < CAPACITY + 3; count += 1) log("system", String(count));
  await settled();
  expect([lines.value.length, lines.value[0]?.text, dropped.value]).toEqual([CAPACITY, "3", 3]);
  const before = clear();
  expect(lines.value).toEqual([]);
  restore(before);
  expect(lines.value.length).toBe(CAPACITY);
});
