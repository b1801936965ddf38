import { describe, expect, it } from "vitest";
import { log2 } from "../../src/pages/collatz/model/number";
import {
  bitAt,
  decimateCurve,
  findMeeting,
  nextValue,
  computeValues,
  computeTrajectory,
} from "../../src/pages/collatz/model/trajectory";

/** Compute a trajectory with single steps. */
function plain(n: bigint): bigint[] {
  const found = [n];
  for (let value = n; value !== 1n; ) {
    value = nextValue(value);
    found.push(value);
  }
  return found;
}

const SAMPLES = [
  1n,
  2n,
  3n,
  27n,
  97n,
  703n,
  837799n,
  2n ** 64n - 1n,
  2n ** 64n,
  2n ** 64n + 1n,
  2n ** 89n - 1n,
  10n ** 40n + 7n,
  3n ** 200n + 2n,
  2n ** 500n - 1n,
  2n ** 300n,
];

describe("walk", () => {
  it("knows the trajectory of 27", () => {
    expect(computeTrajectory(27n)).toMatchObject({ isComplete: true, delay: 111, odd: 41, peak: 9232n, peakStep: 77 });
  });
  it.each(SAMPLES)("agrees with single steps for %s", (n) => {
    const [found, terms] = [computeTrajectory(n), plain(n)];
    const peak = terms.reduce((max, value) => (value > max ? value : max));
    expect(found).toMatchObject({ isComplete: true, delay: terms.length - 1, peak, peakStep: terms.indexOf(peak) });
    expect(found.odd).toBe(terms.filter((value) => value % 2n === 1n && value !== 1n).length);
    expect(found.logs).toHaveLength(terms.length);
    for (const [step, value] of terms.entries())
      expect(Math.abs((found.logs[step] as number) - log2(value))).toBeLessThan(1e-4);
    const bits: bigint[] = [];
    for (let at = 0; at < terms.length - 1; at += terms[at]! % 2n ? 2 : 1) bits.push(terms[at]! % 2n);
    expect(Array.from({ length: found.shortcut }, (_, index) => BigInt(bitAt(found.parity, index)))).toEqual(bits);
  });
  it("walks 1,000 digits and finds any value again", () => {
    const n = 10n ** 999n + 7n;
    const [found, terms] = [computeTrajectory(n), plain(n)];
    expect(found.delay).toBe(terms.length - 1);
    for (const step of [0, 1, 1500, 5000, terms.length - 1]) expect(computeValues(found, step)).toEqual([terms[step]]);
    expect(computeValues(found, terms.length - 3, 10)).toEqual(terms.slice(-3));
  });
  it("says when it gave up", () => {
    expect(computeTrajectory(2n ** 500n - 1n, 64)).toMatchObject({ isComplete: false, shortcut: 64 });
    expect(() => computeTrajectory(0n)).toThrow(RangeError);
  });
});

describe("meeting", () => {
  const pairs: [bigint, bigint][] = [
    [27n, 31n],
    [3n, 13n],
    [5n, 32n],
    [8n, 4n],
    [27n, 27n],
    [1n, 97n],
    [837799n, 2n ** 100n - 1n],
    [12n, 13n],
    [10n, 3n],
  ];
  it.each(pairs)("of %s and %s is the first common value", (one, other) => {
    const [left, right] = [plain(one), plain(other)];
    const there = new Set(right);
    const common = left.find((value) => there.has(value)) as bigint;
    const found = findMeeting(computeTrajectory(one), computeTrajectory(other));
    expect(found.steps).toEqual([left.indexOf(common), right.indexOf(common)]);
    expect(left[found.steps[0]]).toBe(right[found.steps[1]]);
  });
});

it("keeps the least and the greatest of every run", () => {
  const { low, high } = decimateCurve(Float32Array.from([1, 5, 2, 8, 3, 4]), 0, 6, 3);
  expect([...low]).toEqual([1, 2, 3]);
  expect([...high]).toEqual([5, 8, 4]);
});
