/** Tests of the Threads page's computations on results and views. */

import { describe, expect, it, vi } from "vitest";
import { viewAround, clampView, panView, formatTick, viewTicks, fullView, zoomView } from "../../src/timeline/view";
import { flattenParameters, nestParameters } from "../../src/lib/parameters";
import { createPalette, rampColor, type Rgb } from "../../src/timeline/palette";
import { MODES } from "../../src/timeline/sums";
import {
  createBars,
  quantileBin,
  expectedThreads,
  findFirstReplica,
  listedReplica,
  type Cell,
} from "../../src/pages/threads/model/result";

function cellOf(bins: [number, number][], more: Partial<Cell> = {}): Cell {
  return {
    cell: 0,
    cores: 8,
    scheduler: "fifo",
    replicas: bins.reduce((sum, [, count]) => sum + count, 0),
    outcomes: { completed: 0, deadlocked: 0, capped: 0 },
    metrics: {},
    latency: {},
    histograms: { makespan_ns: { bins } },
    examples: {},
    deadlock: null,
    ...more,
  };
}

describe("view", () => {
  it("zooms around a moment, which stays where it is", () => {
    const view = { t0: 100, t1: 200 };
    const next = zoomView(view, 0.5, 125, 1000);
    expect(next).toEqual({ t0: 112.5, t1: 162.5 });
    expect(zoomView(next, 2, 125, 1000)).toEqual(view);
  });
  it("never leaves the trace, nor shows less than a few ns", () => {
    expect(panView({ t0: 0, t1: 100 }, -5, 1000).t0).toBeCloseTo(-20, 9);
    expect(panView({ t0: 900, t1: 1000 }, 5, 1000).t1).toBeCloseTo(1020, 9);
    expect(fullView(1000)).toEqual({ t0: -20, t1: 1020 });
    const tiny = zoomView({ t0: 5, t1: 6 }, 1e-9, 5.5, 1000);
    expect(tiny.t1 - tiny.t0).toBeGreaterThan(0.01);
    expect(clampView({ t0: 300, t1: 300 }, 1000).t1).toBeGreaterThan(300);
    expect(viewAround(10, 20, 1000)).toEqual({ t0: 9, t1: 21 });
  });
  it("has round ticks, in the unit of the trace, distinct from each other", () => {
    for (const [t0, t1, until] of [
      [0, 2291, 2291],
      [1000.1, 1000.9, 2291],
      [0, 5e6, 5e6],
      [3, 3.05, 100],
    ] as const) {
      const { step, at } = viewTicks({ t0, t1 }, 9);
      const texts = at.map((each) => formatTick(each, step, until));
      expect(new Set(texts).size).toBe(texts.length);
      expect(at.length).toBeGreaterThan(1);
      expect(at.length).toBeLessThan(12);
    }
    expect(formatTick(500, 500, 2291)).toBe("0.5\u202fms");
  });
});

function contrast(one: Rgb, other: Rgb): number {
  const light = (rgb: Rgb) =>
    rgb
      .map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4))
      .reduce((sum, each, index) => sum + each * ([0.2126, 0.7152, 0.0722][index] as number), 0);
  const [low, high] = [light(one), light(other)].sort((left, right) => left - right) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

it.each(MODES.flatMap((mode) => [false, true].map((dark) => [mode, dark] as const)))(
  "colors by %s, dark %s, stand out from the ground",
  (mode, dark) => {
    const found = createPalette(mode, dark);
    for (let level = 0; level <= 1; level += 0.05)
      expect(contrast(rampColor(found, level), found.background)).toBeGreaterThanOrEqual(3);
    expect(contrast(found.steal, found.background)).toBeGreaterThanOrEqual(3);
    expect(contrast(found.blocked, found.background)).toBeGreaterThanOrEqual(3);
  },
);

describe("distribution", () => {
  it("puts every replica into a bar, holes included", () => {
    const bars = createBars(
      cellOf([
        [100, 3],
        [101, 4],
        [250, 2],
        [399, 1],
      ]),
    );
    expect(bars.length).toBeLessThanOrEqual(40);
    expect(bars.reduce((sum, bar) => sum + bar.count, 0)).toBe(10);
    expect(bars.some((bar) => bar.count === 0)).toBe(true);
    for (const [index, bar] of bars.entries()) if (index) expect(bar.from).toBe(bars[index - 1]?.to);
    expect(createBars(cellOf([]))).toEqual([]);
  });
  it("finds the bin of a share", () => {
    const cell = cellOf([
      [10, 1],
      [20, 8],
      [30, 1],
    ]);
    expect([0, 0.05, 0.5, 0.95, 1].map((share) => quantileBin(cell, share))).toEqual([10, 10, 20, 30, 30]);
  });
  it("takes what the result names before it looks", () => {
    expect(listedReplica(cellOf([[40, 1]], { examples: { fastest: { replica: 7, makespan_us: 0.04 } } }), 40, 40)).toBe(
      7,
    );
    expect(
      listedReplica(cellOf([[40, 1]], { examples: { deadlocked: { replica: 7, makespan_us: 0.04 } } }), 40, 40),
    ).toBeUndefined();
    const cell = cellOf([[40, 2]]);
    cell.histograms.makespan_ns = {
      bins: [
        [40, 2],
        [41, 1],
      ],
      replicas: [
        [40, 9],
        [41, 3],
      ],
    };
    expect(listedReplica(cell, 40, 41)).toBe(3);
    expect(listedReplica(cell, 40, 40)).toBe(9);
  });
  it("finds the first replica of a bin with few questions", async () => {
    const makespans = Array.from({ length: 1000 }, (_, replica) => (replica * 7919) % 97);
    const bins = vi.fn(async (count: number) => {
      const found = new Map<number, number>();
      for (const each of makespans.slice(0, count)) found.set(each, (found.get(each) ?? 0) + 1);
      return [...found];
    });
    for (const wanted of [0, 13, 96]) {
      bins.mockClear();
      expect(await findFirstReplica(wanted, wanted, 1000, bins)).toBe(makespans.indexOf(wanted));
      expect(bins.mock.calls.length).toBeLessThan(14);
    }
    makespans[999] = 555;
    expect(await findFirstReplica(555, 555, 1000, bins)).toBe(999);
    expect(await findFirstReplica(600, 700, 1000, bins)).toBeUndefined();
    expect(await findFirstReplica(makespans[0] as number, 100, 1, bins)).toBe(0);
  });
});

describe("parameters", () => {
  it("go through the address and back", () => {
    const given = {
      cores: [1, 2],
      scheduler: "fifo",
      spawn: { distribution: "pmf", probabilities: [0.5, 0.5] },
      seed: "9007199254740993",
      trace: null,
    };
    expect(nestParameters(flattenParameters(given))).toEqual(given);
    expect(nestParameters(["__proto__.x:1", ":2", "plain"])).toEqual({});
  });
  it("tell how many threads to expect, as the API refuses them", () => {
    const base = { thread_count: 1000, max_depth: 17, spawn: { distribution: "fixed", children: 2 } };
    expect(expectedThreads(base)).toBe(1000 * (2 ** 18 - 1));
    expect(
      expectedThreads({ ...base, max_depth: 10, spawn: { distribution: "binomial", children: 2, probability: 0.4 } }),
    ).toBeCloseTo((1000 * (1 - 0.8 ** 11)) / 0.2, 6);
    expect(
      expectedThreads({ ...base, max_depth: 2, spawn: { distribution: "poisson", mean: 2, shape: "linear" } }),
    ).toBe(1000 * (1 + 2 + 2));
    expect(
      expectedThreads({ ...base, max_depth: 1, spawn: { distribution: "pmf", probabilities: [0.5, 0, 0.5] } }),
    ).toBe(2000);
    expect(expectedThreads({ ...base, spawn: { distribution: "nosuch" } })).toBeUndefined();
    expect(expectedThreads({ ...base, thread_count: "many" })).toBeUndefined();
  });
});
