/** Tests of the Threads page: verdicts, sweeps, messages for missing pictures, and the playhead. */

import { describe, expect, it } from "vitest";
import { Problem } from "../../src/lib/api";
import { flattenParameters, nestParameters } from "../../src/lib/parameters";
import { advanceClock, toggleClock } from "../../src/timeline/clock";
import { createPalette, rampColor, type Rgb } from "../../src/timeline/palette";
import { computeBarHeights } from "../../src/ui/bins";
import {
  applicableSchema,
  createBars,
  findOpeningCell,
  type Cell,
  type Metric,
} from "../../src/pages/threads/model/result";
import { pictureStatus } from "../../src/pages/threads/model/picture-status";
import {
  spreadLabels,
  describeBest,
  createLines,
  nearestCell,
  hasSweep,
  coresToX,
  speedupToY,
} from "../../src/pages/threads/model/sweep";
import { compareCells } from "../../src/pages/threads/model/comparison";

function metric(mean: number, half: number | null): Metric {
  const ci: [number, number] | null = half === null ? null : [mean - half, mean + half];
  return { mean, ci, stdev: 1, min: 0, p05: 0, p50: mean, p95: 0, p99: 0, max: 0 };
}

function cellOf(scheduler: string, metrics: Record<string, Metric>, more: Partial<Cell> = {}): Cell {
  return {
    cell: 0,
    cores: 8,
    scheduler,
    replicas: 300,
    outcomes: { completed: 300, deadlocked: 0, capped: 0 },
    metrics,
    latency: {},
    histograms: {},
    examples: {},
    deadlock: null,
    ...more,
  };
}

describe("verdict", () => {
  const stealing = cellOf("work_stealing", { makespan_us: metric(2142, 52) });
  it("names who is faster, by how much, and both means in one unit", () => {
    const fifo = cellOf("fifo", { makespan_us: metric(2000, 47) });
    const found = compareCells(stealing, fifo);
    expect(found).toEqual({ isClear: true, text: "fifo 7.1\u202f% faster: 2.00 against 2.14\u202fms" });
    expect(compareCells(fifo, stealing)).toEqual(found);
    const slow = cellOf("lifo", { makespan_us: metric(4284, 47) });
    expect(compareCells(slow, stealing)?.text).toBe("work stealing 100\u202f% faster: 2.14 against 4.28\u202fms");
  });
  it("claims no difference that the intervals do not show", () => {
    const near = cellOf("fifo", { makespan_us: metric(2100, 47) });
    expect(compareCells(stealing, near)?.isClear).toBe(false);
    expect(compareCells(stealing, near)?.text).toContain("No clear difference");
    const single = cellOf("fifo", { makespan_us: metric(1000, null) });
    expect(compareCells(stealing, single)?.isClear).toBe(false);
    expect(compareCells(stealing, cellOf("fifo", {}))).toBeUndefined();
  });
  it("writes short and long times in their own unit", () => {
    const text = (one: number, other: number) =>
      compareCells(cellOf("a", { makespan_us: metric(one, 0) }), cellOf("b", { makespan_us: metric(other, 0) }))?.text;
    expect(text(1, 3)).toContain("1.00 against 3.00\u202fµs");
    expect(text(900, 1200)).toContain("0.90 against 1.20\u202fms");
    expect(text(123_456, 234_567)).toContain("123 against 235\u202fms");
  });
});

describe("sweep", () => {
  const cells = [1, 2, 4].flatMap((cores, row) =>
    ["fifo", "lifo"].map((scheduler, column) =>
      cellOf(
        scheduler,
        { speedup: metric(cores * (scheduler === "fifo" ? 1 : 0.5), 0.1) },
        { cores, cell: 2 * row + column },
      ),
    ),
  );
  const lines = createLines(cells.toReversed());
  const plane = { left: 40, top: 10, width: 400, height: 200, cores: 5, speedup: 5 };
  it("is a line for each scheduler, its points by cores", () => {
    expect(hasSweep(cells)).toBe(true);
    expect(hasSweep(cells.filter((each) => each.cores === 4))).toBe(false);
    expect(lines.map((line) => line.scheduler).sort()).toEqual(["fifo", "lifo"]);
    for (const { points } of lines) expect(points.map((point) => point.cores)).toEqual([1, 2, 4]);
    expect(createLines([cellOf("fifo", {})])).toEqual([]);
  });
  it("opens the cell whose point is meant, and none far from every point", () => {
    for (const { points } of lines)
      for (const { cell, cores, mean } of points)
        expect(nearestCell(plane, lines, coresToX(plane, cores) + 3, speedupToY(plane, mean) - 3, 20)).toBe(cell);
    expect(nearestCell(plane, lines, coresToX(plane, 3), speedupToY(plane, 4.5), 20)).toBeUndefined();
  });
  it("names as alike those that the interval does not tell apart", () => {
    expect(describeBest(lines)).toBe("Most: 4 on 4 cores with fifo");
    const close = [...cells, cellOf("round_robin", { speedup: metric(3.95, 0.1) }, { cores: 4, cell: 9 })];
    expect(describeBest(createLines(close))).toBe("Most: 4 on 4 cores with fifo (round robin within the interval)");
  });
  it("keeps labels apart, in their order and on the canvas", () => {
    expect(spreadLabels([50, 52, 10], 15, 200)).toEqual([50, 65, 10]);
    const low = spreadLabels([198, 199, 200], 15, 200);
    expect(low).toEqual([170, 185, 200]);
  });
});

describe("why there is no picture", () => {
  const base = {
    id: "ab",
    job: undefined,
    wasKnown: false,
    jobProblem: undefined,
    resultProblem: undefined,
    recording: undefined,
  };
  const gone = new Problem(404, "Not found", "there is no job ab");
  it("of a job that is not known says so instead of waiting for ever", () => {
    expect(pictureStatus(base)).toMatchObject({ isExpected: true, isError: false });
    expect(pictureStatus({ ...base, jobProblem: gone })).toMatchObject({ isExpected: false, isError: true });
    expect(pictureStatus({ ...base, jobProblem: gone }).text).toContain("There is no job ab");
    expect(pictureStatus({ ...base, wasKnown: true }).text).toContain("were deleted");
    expect(pictureStatus({ ...base, jobProblem: new Problem(503, "Busy", "Redis is away") }).text).toContain(
      "Redis is away",
    );
  });
  it.each(["failed", "cancelled", "skipped"] as const)("of a %s job waits for nothing", (state) => {
    const found = pictureStatus({ ...base, job: { state, error: "why" } });
    expect(found.isExpected).toBe(false);
    expect(found.text).toContain(state);
  });
  it("names the replica that a worker records", () => {
    const job = { state: "done" as const, error: null };
    expect(pictureStatus({ ...base, job, recording: 345 }).text).toContain("345");
    expect(pictureStatus({ ...base, job }).isExpected).toBe(true);
    expect(pictureStatus({ ...base, job, resultProblem: gone })).toMatchObject({ isError: true, isExpected: false });
    expect(pictureStatus({ ...base, id: "" }).isExpected).toBe(true);
  });
});

it("bars that are not equally wide are as tall as they are dense", () => {
  // Evenly distributed numbers across an octave boundary, at which the bin width and the counts double.
  const bars = createBars(
    cellOf("fifo", {}, {
      histograms: { makespan_ns: { bins: Array.from({ length: 40 }, (_, at) => [172 + at, at < 20 ? 10 : 20]) } },
    } as Partial<Cell>),
  );
  const found = computeBarHeights(bars);
  expect(new Set(bars.map((bar) => bar.count))).toEqual(new Set([10, 20]));
  expect(found.isDensity).toBe(true);
  for (const tall of found.values) expect(tall).toBeCloseTo(found.values[0] as number, 6);
  expect(computeBarHeights([0, 1, 2].map((from) => ({ from, to: from + 1, count: from })))).toEqual({
    isDensity: false,
    values: [0, 1, 2],
  });
  expect(computeBarHeights([])).toEqual({ isDensity: false, values: [] });
});

describe("playback", () => {
  it("begins anew at the end, and stops there", () => {
    expect(toggleClock({ time: 100, isPlaying: false, speed: 10 }, 100)).toEqual({
      time: 0,
      isPlaying: true,
      speed: 10,
    });
    expect(advanceClock({ time: 99, isPlaying: true, speed: 10 }, 100, 5000)).toEqual({
      time: 100,
      isPlaying: false,
      speed: 10,
    });
  });
});

function lab(rgb: Rgb): number[] {
  const [red, green, blue] = rgb.map((each) =>
    each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4,
  ) as [number, number, number];
  const long = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const middle = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const short = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return [
    0.2104542553 * long + 0.793617785 * middle - 0.0040720468 * short,
    1.9779984951 * long - 2.428592205 * middle + 0.4505937099 * short,
    0.0259040371 * long + 0.7827717662 * middle - 0.808675766 * short,
  ];
}

function apartness(one: Rgb, other: Rgb): number {
  const [first, second] = [lab(one), lab(other)];
  return Math.hypot(...first.map((each, index) => each - (second[index] as number)));
}

describe.each([false, true])("depths in dark %s", (dark) => {
  it.each([1, 2, 5, 30, 64])("of %i: a root is never taken for its children", (deepest) => {
    const found = createPalette("depth", dark, deepest);
    expect(apartness(rampColor(found, 0), rampColor(found, 1 / deepest))).toBeGreaterThan(0.15);
  });
  it("differ from one to the next in a shallow tree", () => {
    const found = createPalette("depth", dark, 5);
    for (let depth = 0; depth < 5; depth += 1)
      expect(apartness(rampColor(found, depth / 5), rampColor(found, (depth + 1) / 5))).toBeGreaterThan(0.05);
  });
});

describe("the form", () => {
  const schema = { properties: { quantum_us: {}, steal_cost_us: {}, join_cost_us: {}, cores: {}, trace: {} } };
  const shown = (parameters: Record<string, unknown>, given = {}) =>
    Object.keys(applicableSchema(schema, parameters, given).properties);
  it("hides what does not apply, and keeps what was given", () => {
    expect(shown({ scheduler: "fifo", join: "none" })).toEqual(["cores"]);
    expect(shown({ scheduler: ["fifo", "round_robin"], join: "suspend" })).toEqual([
      "quantum_us",
      "join_cost_us",
      "cores",
    ]);
    expect(shown({ scheduler: "work_stealing", join: "none" })).toEqual(["steal_cost_us", "cores"]);
    expect(shown({ scheduler: "fifo", join: "none" }, { quantum_us: 5 })).toEqual(["quantum_us", "cores"]);
  });
  it("keeps a list that was emptied in the address: no default takes its place", () => {
    expect(nestParameters(flattenParameters({ scheduler: [] }))).toEqual({ scheduler: [] });
  });
});

it("opens a sweep at its highest speedup, and a job on one number of cores at its first cell", () => {
  const cells = [1, 2, 8, 64].map((cores, cell) =>
    cellOf("fifo", { speedup: metric(cores === 64 ? 5 : Math.sqrt(cores) * 2, null) }, { cell, cores }),
  );
  expect(findOpeningCell(cells)?.cores).toBe(8);
  const schedulers = [1, 2].map((mean, cell) => cellOf(`s${cell}`, { speedup: metric(mean, null) }, { cell }));
  expect(findOpeningCell(schedulers)?.cell).toBe(0);
  expect(findOpeningCell([])).toBeUndefined();
});
