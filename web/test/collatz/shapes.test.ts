import { describe, expect, it, test } from "vitest";
import { boundingBox, createCoral, rotateUpright } from "../../src/pages/collatz/model/coral";
import { computeDelay } from "../../src/pages/collatz/model/delays";
import { layOutAround, growTree, findPath, placeBranches } from "../../src/pages/collatz/model/inverse";
import { bitLength, formatPower } from "../../src/pages/collatz/model/number";
import { paletteColors, PALETTES } from "../../src/pages/collatz/model/palette";
import { computeTrajectory } from "../../src/pages/collatz/model/trajectory";

test("delays of single numbers before any table is made, also where doubles do not hold the peak", () => {
  for (const n of [1, 2, 27, 837_799, 2 ** 42 - 1, 8_528_817_511, 2 ** 53 - 1]) {
    const { delay, peak } = computeTrajectory(BigInt(n));
    expect({ ...computeDelay(n) }).toEqual({ steps: delay, bits: bitLength(peak) });
  }
});

const tree = (depth: number, root = 1n) =>
  growTree(root, { depth, toggledValues: new Set<string>(), isPruned: false, maxBranches: 600 }).root;

describe("a tree around its first branch", () => {
  it.each([
    [1, 800, 500],
    [4, 800, 500],
    [6, 390, 500],
    [14, 1000, 560],
    [24, 1000, 560],
    [60, 390, 700],
  ])("of %i levels stands within %i x %i, each number at a place of its own", (depth, width, height) => {
    const spots = layOutAround(tree(depth), width, height);
    const places = new Set(spots.map(({ x, y }) => `${x.toFixed(3)} ${y.toFixed(3)}`));
    expect(places.size).toBe(spots.length);
    for (const { x, y } of spots) {
      expect(Math.abs(x)).toBeLessThanOrEqual(width / 2 + 0.001);
      expect(Math.abs(y)).toBeLessThanOrEqual(height / 2 + 0.001);
    }
  });
  it("has what leads to the first branch as a stem, straight up", () => {
    const spots = layOutAround(tree(12), 800, 500);
    const stem = [1n, 2n, 4n, 8n, 16n].map((value) => spots.find(({ branch }) => branch.value === value)!);
    expect(stem.map(({ x }) => x)).toEqual([0, 0, 0, 0, 0]);
    for (let index = 1; index < stem.length; index += 1) expect(stem[index]!.y).toBeLessThan(stem[index - 1]!.y);
  });
  it("names numbers where no other mark is", () => {
    const spots = layOutAround(tree(14), 1000, 560);
    const level = spots.filter(({ hasLabel: named, angle }) => named && angle === 0);
    expect(level.length).toBeGreaterThan(20);
    for (const one of level) {
      const end = one.x + 7.4 * (String(one.branch.value).length + 1);
      const under = spots.filter(({ x, y }) => x > one.x && x < end && Math.abs(y - one.y) < 6);
      expect(under.map(({ branch }) => [one.branch.value, branch.value])).toEqual([]);
    }
  });
  it("lights the path of a number to the root, and none of one that is not there", () => {
    const places = placeBranches(tree(12));
    expect([...findPath(places, "13")]).toEqual([13n, 40n, 20n, 10n, 5n, 16n, 8n, 4n, 2n, 1n]);
    expect(findPath(places, "7").size).toBe(0);
    expect(findPath(places, "").size).toBe(0);
  });
});

test.each([
  [8.65, 16.2],
  [-20, 31],
  [3, 40],
])("a coral of %f and %f degrees stands above its root, as long as before", (even, odd) => {
  const grown = createCoral({ numbers: 2000, even, odd });
  const turned = rotateUpright(grown);
  const middle = turned.reduce((sum, { x1, y1 }) => ({ x: sum.x + x1, y: sum.y + y1 }), { x: 0, y: 0 });
  expect(Math.abs(middle.x)).toBeLessThan(1e-6 * Math.abs(middle.y));
  expect(middle.y).toBeGreaterThan(0);
  const length = (all: typeof grown) => all.reduce((sum, s) => sum + Math.hypot(s.x1 - s.x0, s.y1 - s.y0), 0);
  expect(length(turned)).toBeCloseTo(length(grown), 3);
  expect(boundingBox(turned).height).toBeGreaterThan(0);
});

/** Return the WCAG contrast between a color and a background of the given luminance. */
function contrast(color: string, ground: number): number {
  const [red, green, blue] = color.match(/\d+/g)!.map((channel) => {
    const value = Number(channel) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  const own = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
}

describe.each(PALETTES)("palette %s", (name) => {
  it("is seen from root to middle on light and on dark ground, and changes on the way", () => {
    for (const dark of [false, true]) {
      const color = paletteColors(name, dark);
      for (const share of [0, 0.25, 0.5]) expect(contrast(color(share), dark ? 0.008 : 0.96)).toBeGreaterThan(2);
      expect(new Set([0, 0.25, 0.5, 0.75, 1].map(color)).size).toBe(5);
    }
  });
});

test("powers are written as they are printed", () => {
  expect([formatPower(2, 15), formatPower(2, 71), formatPower(10, 0), formatPower(10, -3)]).toEqual([
    "2¹⁵",
    "2⁷¹",
    "10⁰",
    "10⁻³",
  ]);
});
