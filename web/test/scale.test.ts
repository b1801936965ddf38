import { expect, test } from "vitest";
import { indexAt, timeTicks, roundUp } from "../src/ui/scale";
import { binAt } from "../src/ui/bins";

test.each([
  [0, 1],
  [1, 1],
  [1.01, 1.5],
  [97, 100],
  [0.03, 0.03],
  [7.1e9, 8e9],
  [NaN, 1],
])("the top over %s is %s", (value, expected) => {
  expect(roundUp(value)).toBeCloseTo(expected, 12);
});

test("the top over bytes is round in their unit", () => {
  expect([roundUp(2.2 * 2 ** 30, true), roundUp(900 * 2 ** 20, true), roundUp(700, true)]).toEqual([
    3 * 2 ** 30,
    1000 * 2 ** 20,
    800,
  ]);
});

test("ticks are round and no more than asked for", () => {
  expect(timeTicks(1003, 1603, 4)).toEqual([1200, 1500]);
  expect(timeTicks(1003, 1603, 9)).toEqual([1080, 1200, 1320, 1440, 1560]);
});

test("the nearest time is found", () => {
  const times = [0, 10, 20];
  expect([-5, 0, 4, 6, 19, 99].map((time) => indexAt(times, time))).toEqual([0, 0, 0, 1, 2, 2]);
  expect(indexAt([], 5)).toBe(-1);
});

test("a bin is found under its pixels", () => {
  const bins = [
    { from: 0, to: 1, count: 1 },
    { from: 1, to: 2, count: 3 },
  ];
  expect([binAt(44, 152, bins), binAt(143, 152, bins), binAt(10, 152, bins), binAt(10, 10, [])]).toEqual([
    0,
    1,
    undefined,
    undefined,
  ]);
});
