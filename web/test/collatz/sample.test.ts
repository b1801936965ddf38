import { describe, expect, it, test } from "vitest";
import { createGrid } from "../../src/density/grid";
import { scalePosition } from "../../src/density/color";
import { joinRanges, uncoveredParts } from "../../src/pages/collatz/model/coverage";
import { computeWindow } from "../../src/pages/collatz/model/delays";
import { describeDuration, bestPace } from "../../src/pages/collatz/model/estimate";
import { findRecords } from "../../src/pages/collatz/model/page-records";
import {
  parseResult,
  MIXED_RESIDUES,
  paintDensity,
  paintExact,
  paintSample,
} from "../../src/pages/collatz/model/layers";
import { bitLength } from "../../src/pages/collatz/model/number";
import { publishedRecords } from "../../src/pages/collatz/model/records";
import { CYCLE, createSample, type Sample } from "../../src/pages/collatz/model/sample";
import { createScene, type KnownData } from "../../src/pages/collatz/model/scene";
import { fullView, type Range } from "../../src/pages/collatz/model/view";
import { computeTrajectory } from "../../src/pages/collatz/model/trajectory";

const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);
const RANGES: [string, Range][] = [
  ["a million", { first: 1n, end: 1_000_001n }],
  ["10^11, where a stratum is wider than 32 bits of a draw", { first: 1n, end: 10n ** 11n }],
  ["the widest range of doubles", { first: 1n, end: 2n ** 53n }],
  ["beyond doubles", { first: 2n ** 70n, end: 2n ** 70n + 2n ** 60n }],
];

describe.each(RANGES)("a sample of %s", (_, range) => {
  const one = createSample(range, 4000, false);
  const at = (index: number) => range.first + BigInt(one.distance[index] as number);
  it("has as many numbers as asked for, up to twice as many, and stands for all", () => {
    expect(one.distance.length).toBeGreaterThanOrEqual(3990);
    expect(one.distance.length).toBeLessThanOrEqual(8002);
    expect(sum(one.weight) / Number(range.end - range.first)).toBeCloseTo(1, 2);
  });
  it("has no stripe: every residue is as frequent as any other", () => {
    for (const modulus of [2, 3, 4, 7, 8]) {
      const expected = one.rest.length / modulus;
      const counts = Array.from({ length: modulus }, (_, each) => one.rest.filter((r) => r % modulus === each).length);
      for (const count of counts) expect(Math.abs(count - expected)).toBeLessThan(6 * Math.sqrt(expected));
    }
  });
  it("has the steps, peaks and residues of its numbers", () => {
    if (range.end > 2n ** 53n) return;
    for (let index = 0; index < one.distance.length; index += 97) {
      const { delay, peak } = computeTrajectory(at(index));
      expect([one.delays[index], one.bits[index]]).toEqual([delay, bitLength(peak)]);
      expect(one.rest[index]).toBe(Number(at(index) % BigInt(CYCLE)));
    }
  });
});

test("a sample of few numbers is all of them, also on a log axis", () => {
  const range = { first: 5n, end: 305n };
  for (const log of [false, true]) {
    const { distance: far, weight, delays } = createSample(range, 20_000, log);
    expect([...far]).toEqual(Array.from({ length: 300 }, (_, index) => index));
    expect(new Set(weight)).toEqual(new Set([1]));
    expect([...delays]).toEqual([...computeWindow(5n, 300).delays]);
  }
});

test("what is in view stays where it is while the view moves", () => {
  const [one, two] = [0n, 10n ** 8n].map((by) => createSample({ first: 1n + by, end: 10n ** 9n + by }, 5000, false));
  const own = new Set(one!.distance);
  const kept = [...two!.distance].filter((far) => own.has(far + 10 ** 8)).length;
  // About a tenth of the sample is new.
  expect(kept / two!.distance.length).toBeGreaterThan(0.89);
});

test("a sample's mean is the mean of the range", () => {
  const all = computeWindow(1n, 1_000_000).delays;
  const { delays, weight } = createSample({ first: 1n, end: 1_000_001n }, 20_000, false);
  const mean = sum(delays.map((delay, index) => delay * (weight[index] as number))) / sum(weight);
  expect(Math.abs(mean - sum(all) / all.length)).toBeLessThan(1.5);
});

describe("what is covered", () => {
  it("is joined, and what is left of a part is told", () => {
    const covered = joinRanges(joinRanges([], [[10, 20]]), [
      [30, 40],
      [20, 25],
    ]);
    expect(covered).toEqual([
      [10, 25],
      [30, 40],
    ]);
    expect(uncoveredParts(covered, 0, 50)).toEqual([
      [0, 10],
      [25, 30],
      [40, 50],
    ]);
    expect(uncoveredParts(covered, 12, 24)).toEqual([]);
    expect(uncoveredParts([], 3, 4)).toEqual([[3, 4]]);
  });
});

/** Return a job's columns of `wide` numbers each. */
function columns(job: string, first: bigint, count: number, wide: number) {
  const starts = Array.from({ length: count }, (_, column) => String(first + BigInt(column * wide)));
  const density = starts.map((start) => {
    const counts = new Map<number, number>();
    for (const delay of computeWindow(BigInt(start), wide).delays) counts.set(delay, (counts.get(delay) ?? 0) + 1);
    return [...counts];
  });
  return parseResult(job, { start: starts, count: starts.map(() => wide), density })!;
}

describe("a picture of several sources", () => {
  const frame = { view: fullView({ first: 1n, end: 4001n }), low: 0, high: 300, log: false };
  const total = (cells: Float32Array) => sum(cells);
  it("neither counts a number twice nor erases it, where windows meet within a pixel", () => {
    // With 7 pixels, every window ends inside a pixel.
    const cells = createGrid(7, 300);
    let covered = paintDensity(cells, frame, columns("a", 1n, 10, 100));
    covered = paintDensity(cells, frame, columns("b", 1001n, 10, 100), covered);
    paintDensity(cells, frame, columns("c", 2001n, 4, 500), covered);
    expect(total(cells.cells)).toBeCloseTo(4000, 2);
  });
  it("draws of a coarse window what a fine one leaves, in any place", () => {
    const cells = createGrid(500, 300);
    const covered = paintDensity(cells, frame, columns("fine", 1501n, 10, 100));
    paintDensity(cells, frame, columns("coarse", 1n, 40, 100), covered);
    expect(total(cells.cells)).toBeCloseTo(4000, 2);
  });
  it("draws exact numbers first, then columns, then a sample", () => {
    const cells = createGrid(400, 300);
    const exact = computeWindow(1n, 1000);
    paintExact(cells, frame, exact);
    const covered = paintDensity(cells, frame, columns("j", 1n, 20, 100), [[0, 1000]]);
    expect(covered).toEqual([[0, 2000]]);
    const count = paintSample(cells, frame, createSample({ first: 1n, end: 4001n }, 4000, false), covered);
    expect(count).toBe(2000);
    expect(total(cells.cells)).toBeCloseTo(4000, 2);
  });
  it("leaves columns out that would be slabs, and a sample stands there", () => {
    const log = { ...frame, log: true };
    const [slab, cells] = [createGrid(400, 300), createGrid(400, 300)];
    const job = columns("j", 1n, 4, 1000);
    paintDensity(slab, log, job);
    const across = (row: number) => slab.cells.subarray(row * 400, row * 400 + 200);
    // Wide columns are spread evenly, so the row of 111 steps has one value across half of the picture.
    expect(new Set(across(111)).size).toBe(1);
    const covered = paintDensity(cells, log, job, [], 20);
    expect(covered.length === 0 || covered[0]![0] >= 1000).toBe(true);
    paintSample(cells, log, createSample({ first: 1n, end: 4001n }, 20_000, true), covered);
    // Only the number 27 takes 111 steps there, and it has its own pixel.
    const row = [...cells.cells.subarray(111 * 400, 111 * 400 + 200)];
    expect(row.filter((value) => value > 0)).toEqual([1]);
  });
});

describe("colors of more numbers than are computed one by one", () => {
  const range = { first: 1n, end: 10n ** 9n };
  const some = createSample(range, 20_000, false);
  const wanted = { view: fullView(range), isLog: false, modulus: 3, isDark: false, width: 300, height: 200, scale: 1 };
  const known: KnownData = { exact: [], isComplete: false, densities: [], samples: [some] };
  const drawn = (metric: "count" | "peak" | "residue") => createScene({ ...wanted, metric, maxPoints: 5e4 }, known);
  it("are those of the sample's peaks and residues", () => {
    const peak = drawn("peak");
    expect([peak.source, peak.colorScale.mode]).toEqual(["sample", "value"]);
    expect(peak.colorScale.max).toBe(some.bits.reduce((max, bits) => Math.max(max, bits), 0));
    const residue = drawn("residue");
    expect(residue.colorScale.mode).toBe("class");
    expect(new Set(residue.grid!.cells)).toEqual(new Set([0, 1, 2, 3, MIXED_RESIDUES]));
  });
  it("are not those of columns, which have counts only", () => {
    const job = columns("j", 1n, 200, 100);
    const both = { ...known, densities: [job] };
    const near = { ...wanted, view: fullView({ first: 1n, end: 20_001n }), maxPoints: 5e4 };
    expect(createScene({ ...near, metric: "count" }, both).source).toBe("columns");
    expect(
      createScene(
        { ...near, metric: "peak" },
        { ...both, samples: [createSample({ first: 1n, end: 20_001n }, 5000, false)] },
      ),
    ).toMatchObject({ source: "sample", colorScale: { mode: "value" } });
  });
  it("use the whole scale, though each number stands for thousands", () => {
    const { colorScale: look, grid: cells } = drawn("count");
    const shares = [...cells!.cells].filter((value) => value > 0).map((value) => scalePosition(value, look));
    expect(Math.min(...shares)).toBeLessThan(0.5);
    expect(Math.max(...shares)).toBe(1);
  });
  it("find the numbers drawn, and their axis, of a sample alone", () => {
    const { numbers, frame } = drawn("count");
    expect(numbers).toBe((some as Sample).distance.length);
    expect(frame.high).toBeGreaterThan(400);
  });
});

test("records of numbers that are known are the published ones", () => {
  const chunks = [computeWindow(1n, 65_535), computeWindow(65_536n, 65_536), computeWindow(131_072n, 65_536)];
  const found = findRecords(chunks, { first: 1n, end: 150_001n });
  for (const kind of ["delay", "path"] as const)
    expect(found[kind]).toEqual(publishedRecords(kind).filter(({ n }) => n <= 150_000n));
  const late = findRecords(chunks, { first: 100_000n, end: 100_100n });
  expect(late.delay[0]).toEqual({ n: 100_000n, value: 128n });
});

describe("what a range will take", () => {
  const job = (id: string, seconds: number | null, done: number, more: object = {}) => ({
    job_id: id,
    type: "collatz",
    parameters: { mode: "statistics" },
    done,
    seconds,
    ...more,
  });
  it("follows from the best pace of a job of this mode that was no short one", () => {
    const jobs = [
      job("short", 0.4, 1e9),
      job("best", 50, 5e9),
      job("paused", 900, 5e9),
      job("verify", 900, 1e15, { parameters: { mode: "verify" } }),
      job("other", 900, 1e15, { type: "other" }),
      job("queued", null, 0),
    ];
    expect(bestPace(jobs)).toEqual({ rate: 1e8, job: "best", isShort: false });
    expect(bestPace(jobs.slice(0, 1))).toEqual({ rate: 2.5e9, job: "short", isShort: true });
    expect(bestPace(jobs.slice(-1))).toBeUndefined();
  });
  const pace = { rate: 1e8, job: "b", isShort: false };
  it.each([
    [10n ** 14n, { pace, workers: 2, waitingJobs: 0 }, "100 T numbers: about 11 d 13 h on this cluster"],
    [10n ** 6n, { pace, workers: 2, waitingJobs: 0 }, "1 M numbers: about a second on this cluster"],
    [
      10n ** 10n,
      { pace, workers: 1, waitingJobs: 2 },
      "10 G numbers: about 1 min 40 s on this cluster, after 2 jobs that wait",
    ],
    [
      10n ** 8n,
      { pace: { ...pace, isShort: true }, workers: 1, waitingJobs: 0 },
      "100 M numbers: about 1.0 s on this cluster",
    ],
    // Startup dominated the short job, so its pace cannot predict a job that is 300 times longer.
    [10n ** 11n, { pace: { ...pace, isShort: true }, workers: 1, waitingJobs: 0 }, "100 G numbers, time not known yet"],
    [1n, { pace: undefined, workers: 1, waitingJobs: 1 }, "1 number, time not known yet, after 1 job that waits"],
    [5n, { pace, workers: 0, waitingJobs: 0 }, "5 numbers: no worker is live, so the job would wait"],
  ])("%s numbers", (numbers, situation, words) => {
    expect(describeDuration(numbers, situation).replaceAll("\u202f", " ")).toBe(words);
  });
});
