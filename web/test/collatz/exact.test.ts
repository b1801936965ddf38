import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { boundingBox, createCoral, formatSvg } from "../../src/pages/collatz/model/coral";
import {
  countClasses,
  expectedDelay,
  expectedMean,
  logNormalDensity,
  summarize,
} from "../../src/pages/collatz/model/fit";
import { predecessors, findFastest, growTree, placeBranches } from "../../src/pages/collatz/model/inverse";
import { bitLength, log2, MAX_DIGITS, parseNumber, parsePositive } from "../../src/pages/collatz/model/number";
import { compareRecords, completeLimit, missingRecords, publishedRecords } from "../../src/pages/collatz/model/records";
import { nextWindow, relatedNumbers, STRATEGIES, type StrategySetting } from "../../src/pages/collatz/model/strategies";
import { computeTrajectory } from "../../src/pages/collatz/model/trajectory";

describe("numbers as typed", () => {
  const good: [string, bigint][] = [
    ["27", 27n],
    ["1 000 000", 10n ** 6n],
    ["10^6", 10n ** 6n],
    ["1e6", 10n ** 6n],
    ["2^89-1", 2n ** 89n - 1n],
    ["3^5*2^7+1", 3n ** 5n * 128n + 1n],
    ["(2^4+1)*7", 119n],
    ["2^3^2", 512n],
    ["10-4-3", 3n],
    ["2**10", 1024n],
    ["1^99999999999", 1n],
    ["0^0", 1n],
    ["10^100+7", 10n ** 100n + 7n],
  ];
  it.each(good)("%s", (text, value) => expect(parseNumber(text).value).toBe(value));
  it.each(["", "x", "2^", "2^-1", "(3", "3)", "1..2", "10^20001", "9^9^9^9", "1e99999999"])(
    "refuses %s in words",
    (text) => {
      expect(parseNumber(text).error).toMatch(/\w/);
    },
  );
  it("bounds what it takes", () => {
    expect(parsePositive(`10^${MAX_DIGITS}-1`).value).toBe(10n ** BigInt(MAX_DIGITS) - 1n);
    expect(parsePositive(`10^${MAX_DIGITS}`).error).toMatch(/digits/);
    expect(parsePositive("3-3").error).toBe("must be at least 1");
  });
  it("measures them", () => {
    for (const value of [1n, 2n, 3n, 255n, 256n, 2n ** 99n - 1n, 2n ** 99n])
      expect(bitLength(value)).toBe(value.toString(2).length);
    expect(log2(2n ** 5000n)).toBe(5000);
    expect(log2(3n ** 300n)).toBeCloseTo(300 * Math.log2(3), 9);
  });
});

describe("the inverse tree", () => {
  it("leads back one step", () => {
    expect(predecessors(16n)).toEqual([32n, 5n]);
    expect(predecessors(4n)).toEqual([8n]);
    expect(predecessors(5n)).toEqual([10n]);
  });
  it("has every number of so many steps", () => {
    const { root } = growTree(1n, { depth: 12, toggledValues: new Set(), isPruned: false, maxBranches: 10_000 });
    const all: bigint[] = [];
    const visit = (branch: typeof root): void =>
      branch.depth === 12 ? void all.push(branch.value) : branch.children.forEach(visit);
    visit(root);
    const brute = Array.from({ length: 4096 }, (_, index) => BigInt(index + 1)).filter(
      (n) => computeTrajectory(n).delay === 12,
    );
    expect(all.sort((left, right) => Number(left - right))).toEqual(brute);
  });
  it("opens by hand, prunes and stops at its limit", () => {
    const open = growTree(1n, { depth: 2, toggledValues: new Set(["4"]), isPruned: false, maxBranches: 100 });
    expect(open.count).toBe(4);
    expect(growTree(3n, { depth: 9, toggledValues: new Set(), isPruned: true, maxBranches: 100 })).toMatchObject({
      count: 1,
      isCut: false,
    });
    expect(growTree(1n, { depth: 60, toggledValues: new Set(), isPruned: false, maxBranches: 100 }).isCut).toBe(true);
  });
  it("has rows of its own for leaves, and every branch after the one it grows from", () => {
    const all = placeBranches(
      growTree(1n, { depth: 9, toggledValues: new Set(), isPruned: false, maxBranches: 1000 }).root,
    );
    const leaves = all.filter(({ branch }) => !branch.children.length).map(({ row }) => row);
    expect(leaves).toEqual(leaves.map((_, index) => index));
    for (const [index, { from, branch }] of all.entries())
      if (from) expect([all.indexOf(from) < index, from.branch.children.includes(branch)]).toEqual([true, true]);
  });
  it.each([
    [1n, 1000n],
    [2n, 4n],
    [100n, 130n],
    [600_000n, 640_000n],
  ])("finds the fastest of %s to %s", (first, end) => {
    const all = Array.from({ length: Number(end - first) }, (_, index) => first + BigInt(index)).filter(
      (n) => bitLength(n - 1n) === bitLength(n),
    );
    const min = Math.min(...all.map((n) => computeTrajectory(n).delay));
    const n = all.find((each) => computeTrajectory(each).delay === min);
    expect(findFastest(first, end)).toEqual({ n, steps: min });
  });
  it("gives up where there is none, and where it would search too long", () => {
    expect(findFastest(2n, 3n)).toBeUndefined();
    expect(findFastest(700_000n, 700_100n)).toBeUndefined();
  });
});

describe("published records", () => {
  it("are those of the kind", () => {
    const source = readFileSync(new URL("../../../jobs/kinds/collatz/records_published.py", import.meta.url), "utf8");
    const pairs = [...source.matchAll(/^ {4}\((\d+), (\d+)\),$/gm)].map(([, n, value]) => `${n} ${value}`);
    expect([...publishedRecords("delay"), ...publishedRecords("path")].map(({ n, value }) => `${n} ${value}`)).toEqual(
      pairs,
    );
    expect([completeLimit("delay"), completeLimit("path")]).toEqual([17_828_259_369n, 12_327_829_503n]);
  });
  it("compare", () => {
    const found = [
      { n: 27n, value: 111n },
      { n: 28n, value: 18n },
      { n: 871n, value: 179n },
      { n: 872n, value: 400n },
      { n: 2n ** 60n, value: 2000n },
    ];
    expect(compareRecords("delay", found).map((each) => each.status)).toEqual([
      "published",
      "range",
      "wrong",
      "wrong",
      "beyond",
    ]);
    expect(missingRecords("delay", found, 20n, 60n).map(({ n }) => n)).toEqual([25n, 54n]);
  });
});

describe("strategies", () => {
  const setting: StrategySetting = { range: { first: 1n, end: 10n ** 9n }, size: 2 ** 16, seed: 7 };
  it.each(STRATEGIES)("%s stays in the range and takes nothing twice", (strategy) => {
    const taken: { first: bigint; end: bigint }[] = [];
    for (let count = 0; count < 30; count += 1) {
      const found = nextWindow(strategy, setting, { takenWindows: taken, best: [837_799n, 626_331n] });
      if (!found) break;
      expect(found.first >= 1n && found.end <= 10n ** 9n && found.first < found.end).toBe(true);
      expect(taken.some(({ first, end }) => found.first < end && first < found.end)).toBe(false);
      taken.push(found);
    }
    expect(taken.length).toBe(strategy === "sequential" ? 1 : 30);
  });
  it("targeted goes to relatives first, adaptive beside the best", () => {
    const holds = (found: { first: bigint; end: bigint } | undefined, n: bigint) =>
      found && found.first <= n && n < found.end;
    const known = { takenWindows: [{ first: 0n, end: 2n ** 16n }], best: [10n ** 8n] };
    expect(holds(nextWindow("targeted", setting, known), 10n ** 8n)).toBe(true);
    expect(holds(nextWindow("adaptive", setting, known), 10n ** 8n + 2n ** 16n)).toBe(true);
    expect(relatedNumbers(27n)).toContain(54n);
  });
  it("repeats itself by seed", () => {
    const known = { takenWindows: [], best: [] };
    expect(nextWindow("random", setting, known)).toEqual(nextWindow("random", setting, known));
    expect(nextWindow("random", { ...setting, seed: 8 }, known)).not.toEqual(nextWindow("random", setting, known));
  });
});

describe("fits", () => {
  it("summarises", () => {
    expect(
      summarize([
        [3, 1],
        [1, 2],
        [2, 1],
      ]),
    ).toEqual({ count: 4, mean: 1.75, deviation: Math.sqrt(0.6875), median: 1, min: 1, max: 3 });
    expect(summarize([])).toBeUndefined();
    expect(
      countClasses([
        [10, 1],
        [11, 2],
        [50, 3],
        [51, 4],
        [100, 5],
        [101, 6],
      ]),
    ).toEqual([1, 5, 9, 6]);
  });
  it("has a log-normal with that mean and deviation", () => {
    const density = logNormalDensity({ mean: 130, deviation: 50 });
    let [mass, mean] = [0, 0];
    for (let value = 0.05; value < 2000; value += 0.1) {
      mass += density(value) * 0.1;
      mean += value * density(value) * 0.1;
    }
    expect(mass).toBeCloseTo(1, 4);
    expect(mean).toBeCloseTo(130, 2);
  });
  it("knows what the model expects", () => {
    expect(expectedDelay(10n ** 9n) / Math.log(1e9)).toBeCloseTo(10.4282, 3);
    let sum = 0;
    for (let n = 1000; n < 3000; n += 1) sum += expectedDelay(BigInt(n));
    expect(expectedMean(1000n, 3000n)).toBeCloseTo(sum / 2000, 1);
    expect(expectedMean(10n ** 20n, 10n ** 20n + 9n)).toBeCloseTo(expectedDelay(10n ** 20n), 6);
  });
});

describe("coral", () => {
  it("has each number once", () => {
    const all = new Set<number>();
    for (let n = 2; n <= 200; n += 1) for (let at = n; at !== 1; at = at % 2 ? 3 * at + 1 : at / 2) all.add(at);
    const segments = createCoral({ numbers: 200, even: 8, odd: 16 });
    expect(segments).toHaveLength(all.size);
    expect(segments[0]).toMatchObject({ x0: 0, y0: 0, depth: 1 });
  });
  it("grows straight without angles, and is an SVG", () => {
    const segments = createCoral({ numbers: 9, even: 0, odd: 0 });
    expect(Math.max(...segments.map(({ x1 }) => Math.abs(x1)))).toBeLessThan(1e-9);
    expect(boundingBox(segments).height).toBeGreaterThan(1);
    expect(formatSvg(segments, () => "#123456", "n").match(/<path /g)).toHaveLength(19);
  });
});
