import { expect, it } from "vitest";
import { formatTable, computeWindow } from "../../src/pages/collatz/model/delays";
import { bitLength } from "../../src/pages/collatz/model/number";
import { computeTrajectory } from "../../src/pages/collatz/model/trajectory";

it("knows the delays of 1 to 10^6", () => {
  const { delays } = computeWindow(1n, 1_000_000);
  const max = delays.reduce((best, value) => Math.max(best, value), 0);
  expect([max, delays.indexOf(max) + 1]).toEqual([524, 837_799]);
  // Sum of OEIS A006577 up to 10^6.
  expect(delays.reduce((sum, value) => sum + value, 0)).toBe(131_434_424);
});

const STARTS = [
  1n,
  2n ** 20n - 50n,
  63_728_100n,
  319_804_800n,
  2n ** 42n - 50n,
  8_528_817_480n,
  2n ** 53n - 50n,
  2n ** 64n - 50n,
  2n ** 90n - 50n,
  10n ** 27n,
];
it.each(STARTS)("agrees with walks from %s on", (start) => {
  const found = computeWindow(start, 100);
  for (let index = 0; index < 100; index += 1) {
    const { delay, peak } = computeTrajectory(start + BigInt(index));
    expect([found.delays[index], found.bits[index]]).toEqual([delay, bitLength(peak)]);
  }
});

it.each(STARTS)("writes exact lines from %s on", (start) => {
  const expected = Array.from({ length: 30 }, (_, index) => {
    const { n, delay, peak } = computeTrajectory(start + BigInt(index));
    return `${n},${delay},${peak}\r\n`;
  });
  expect(formatTable(start, 30)).toBe(expected.join(""));
});
