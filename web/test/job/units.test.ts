import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { follow, nextDelay } from "../../src/lib/follow";
import {
  cellAt,
  cellShares,
  divideCell,
  layOutGrid,
  cellAfterKey,
  findNextUnit,
  cellPosition,
  unitsPerCell,
} from "../../src/pages/job/model/grid";
import {
  stateCodes,
  countStates,
  describeExit,
  describeCounts,
  isStoredFile,
  parseOutputs,
  formatValue,
  blockStart,
} from "../../src/pages/job/model/units";

const LIST = stateCodes({
  total: 10,
  runs: [
    [0, 4, "done"],
    [4, 6, "running"],
    [6, 7, "dead"],
    [9, 10, "retrying"],
  ],
});

test("runs become a code for each unit; units in no run wait", () => {
  expect([...LIST]).toEqual([2, 2, 2, 2, 1, 1, 4, 0, 0, 3]);
  expect(countStates(LIST)).toEqual({ waiting: 2, running: 2, done: 4, retrying: 1, dead: 1 });
  expect(describeCounts(countStates(LIST), 10)).toBe("4 of 10 units done, 2 running, 1 retrying, 1 failed, 2 waiting");
});

test("ends and values in words", () => {
  expect(describeExit({ exit: 137, reason: "timeout" })).toBe("timeout, exit 137");
  expect(describeExit({ exit: 0, reason: "" })).toBe("exit 0");
  expect(describeExit({ exit: null, reason: "" })).toBe("");
  expect([formatValue("a"), formatValue({ b: 1 }), formatValue(null)]).toEqual(["a", '{"b":1}', ""]);
  expect([isStoredFile({ artifact: true }), isStoredFile({ artifact: 1 }), isStoredFile("artifact")]).toEqual([
    true,
    false,
    false,
  ]);
  expect([blockStart(0), blockStart(49), blockStart(50)]).toEqual([0, 0, 50]);
});

test("outputs of a unit are its own files of the manifest", () => {
  const manifest = [
    '{"artifact":1}',
    '["d","outputs/3/empty"]',
    '["f","logs/3",10,"aa"]',
    '["f","outputs/3/out/a.csv",5,"bb"]',
    '["x","outputs/3/run",6,"cc"]',
    '["f","outputs/31/out/a.csv",7,"dd"]',
    '["f","values/3.json",8,"ee"]',
    "",
  ].join("\n");
  expect(parseOutputs(manifest, 3)).toEqual([
    { path: "out/a.csv", bytes: 5, sha: "bb" },
    { path: "run", bytes: 6, sha: "cc" },
    { path: "values/3.json", bytes: 8, sha: "ee" },
  ]);
});

// -- the grid -------------------------------------------------------------------------------------------------------

test.each([
  [1, 1],
  [10_000, 1],
  [10_001, 10],
  [100_000, 10],
])("of %i units %i share a cell", (total, share) => expect(unitsPerCell(total)).toBe(share));

test.each([
  [1, 800],
  [64, 800],
  [10_000, 800],
  [10_000, 366],
  [99_999, 1200],
])("a grid of %i units %i pixels wide has room for each", (total, width) => {
  const grid = layOutGrid(total, width);
  expect(grid.columns * grid.cellSize).toBeLessThanOrEqual(width);
  expect(grid.rows * grid.columns).toBeGreaterThanOrEqual(grid.cells);
  expect(grid.cells * grid.unitsPerCell).toBeGreaterThanOrEqual(total);
  for (const cell of [0, Math.floor(grid.cells / 2), grid.cells - 1]) {
    const [x, y] = cellPosition(cell, grid);
    expect(cellAt(x + 1, y + 1, grid)).toBe(cell);
  }
  expect(cellAt(-1, 0, grid)).toBeUndefined();
  expect(cellAt(grid.columns * grid.cellSize + 1, 0, grid)).toBeUndefined();
  expect(cellAt(0, grid.height + 1, grid)).toBeUndefined();
});

test("a cell of many units is colored by share", () => {
  const list = new Uint8Array(20_001).fill(2);
  list.fill(4, 15, 16);
  list.fill(1, 10, 14);
  const grid = layOutGrid(list.length, 800);
  expect(cellShares(list, 0, grid)).toEqual([{ code: 2, share: 1 }]);
  expect(cellShares(list, 1, grid)).toEqual([
    { code: 4, share: 0.1 },
    { code: 1, share: 0.4 },
    { code: 2, share: 0.5 },
  ]);
  expect(cellShares(list, grid.cells - 1, grid)).toEqual([{ code: 2, share: 1 }]);
});

test("in a small cell, even one failed unit of many has a pixel", () => {
  const shares = (...each: number[]) => each.map((share, code) => ({ code, share }));
  const widths = (size: number, ...each: number[]) => divideCell(shares(...each), size).map(({ width }) => width);
  expect(widths(4, 0.001, 0.999)).toEqual([1, 3]);
  expect(widths(4, 0.98, 0.01, 0.01)).toEqual([2, 1, 1]);
  expect(widths(10, 0.5, 0.3, 0.2)).toEqual([5, 3, 2]);
  expect(widths(3, 0.2, 0.2, 0.2, 0.2, 0.2)).toEqual([1, 1, 1, 0, 0]);
});

test("keys move over the grid and stop at its ends", () => {
  const grid = layOutGrid(100, 200);
  expect(cellAfterKey(0, "ArrowRight", grid)).toBe(1);
  expect(cellAfterKey(0, "ArrowLeft", grid)).toBe(0);
  expect(cellAfterKey(3, "ArrowDown", grid)).toBe(3 + grid.columns);
  expect(cellAfterKey(3, "End", grid)).toBe(99);
  expect(cellAfterKey(50, "Home", grid)).toBe(0);
  expect(cellAfterKey(50, "x", grid)).toBeUndefined();
});

test("the next dead unit is found around the end", () => {
  expect(findNextUnit(LIST, 4, 0)).toBe(6);
  expect(findNextUnit(LIST, 4, 6)).toBe(6);
  expect(findNextUnit(LIST, 2, 3)).toBe(0);
  expect(findNextUnit(new Uint8Array(3), 4, -1)).toBeUndefined();
});

// -- up to date -----------------------------------------------------------------------------------------------------

test("an answer that takes long is asked for less often", () => {
  expect(nextDelay(true, 5000, 10)).toBe(300);
  expect(nextDelay(true, 0, 10)).toBe(1000);
  expect(nextDelay(true, 0, 500)).toBe(5000);
  expect(nextDelay(false, 0, 10)).toBe(3000);
});

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a question that timed out delays the next one no longer than others", async () => {
  let requestCount = 0;
  const follower = follow(
    () => {
      requestCount += 1;
      return new Promise((_, reject) => setTimeout(() => reject(new Error("away")), 6000));
    },
    () => true,
  );
  await vi.advanceTimersByTimeAsync(6000 + 3000);
  expect(requestCount).toBe(2);
  follower.stop();
});

test("events in a burst are one question, and none is asked once nobody looks", async () => {
  let requestCount = 0;
  let lasting = true;
  const follower = follow(
    async () => {
      requestCount += 1;
    },
    () => lasting,
  );
  await vi.advanceTimersByTimeAsync(0);
  expect(requestCount).toBe(1);
  for (let index = 0; index < 50; index += 1) follower.notify();
  await vi.advanceTimersByTimeAsync(1000);
  expect(requestCount).toBe(2);
  await vi.advanceTimersByTimeAsync(3000);
  expect(requestCount).toBe(3);
  lasting = false;
  await vi.advanceTimersByTimeAsync(3000);
  expect(requestCount).toBe(4);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requestCount).toBe(4);
  follower.notify();
  follower.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requestCount).toBe(4);
});
