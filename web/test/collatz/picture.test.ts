import { describe, expect, it } from "vitest";
import { createGrid } from "../../src/density/grid";
import { computeWindow } from "../../src/pages/collatz/model/delays";
import {
  toPixels,
  fromPixels,
  countColumns,
  countExact,
  parseBinary,
  parseResult,
  computeExtent,
  MIXED_RESIDUES,
  paintDensity,
  paintExact,
  enlargeMarks,
  type Frame,
} from "../../src/pages/collatz/model/layers";
import {
  alignRange,
  viewAround,
  overlappingChunks,
  clampView,
  distance,
  moveView,
  panView,
  roundStep,
  visibleRange,
  roundTicks,
  numberAt,
  fullView,
  zoomView,
  type View,
} from "../../src/pages/collatz/model/view";

const limits = { first: 1n, end: 2n ** 96n };
const far = 2n ** 90n;

describe("view", () => {
  it("keeps what is under the cursor, at any size", () => {
    let view: View = fullView(limits);
    const target = 0.3;
    view = viewAround(far, 2 ** 80, limits);
    for (let times = 0; times < 400 && view.span > 8; times += 1) {
      const before = numberAt(view, target);
      view = zoomView(view, 0.8, target, limits);
      const off = numberAt(view, target) - before;
      // Positions in a wide view have the precision of a double.
      expect(Math.abs(Number(off))).toBeLessThanOrEqual(1 + view.span * 2 ** -40);
    }
    expect(view.span).toBe(8);
  });
  it("does not drift while it is zoomed in and out, or panned there and back", () => {
    const view = viewAround(far, 1000, limits);
    let moving = view;
    for (let times = 0; times < 100; times += 1) moving = panView(panView(moving, 0.37, limits), -0.37, limits);
    expect(Math.abs(distance(moving, view.base) + view.frac)).toBeLessThan(1e-3);
    expect(moveView({ base: 5n, frac: 0.5, span: 8 }, -1)).toEqual({ base: 4n, frac: 0.5, span: 8 });
  });
  it("stays within its limits", () => {
    const small = { first: 10n, end: 13n };
    expect(clampView({ base: 0n, frac: 0, span: 100 }, small)).toEqual({ base: 10n, frac: 0, span: 3 });
    expect(panView(fullView(limits), 5, limits)).toEqual(fullView(limits));
    const end = panView(viewAround(far, 100, limits), 1e30, limits);
    expect(numberAt(end, 1)).toBe(limits.end);
    expect(visibleRange(end, limits)).toEqual({ first: limits.end - 100n, end: limits.end });
  });
  it("cuts into chunks and aligned windows", () => {
    expect(overlappingChunks({ first: 65_535n, end: 65_537n })).toEqual([0n, 1n]);
    expect(overlappingChunks({ first: far, end: far + 1n })).toEqual([far >> 16n]);
    const found = alignRange({ first: far + 5n, end: far + 10n ** 9n }, 1024, limits);
    expect(found.k).toBe(20);
    expect(found.first).toBe(far);
    expect(found.end % 2n ** 20n).toBe(0n);
  });
  it("has round ticks", () => {
    expect(roundTicks({ base: 1n, frac: 0, span: 100 }, 5)).toEqual([20n, 40n, 60n, 80n, 100n]);
    expect([0.3, 1, 1.5, 30, 5000, 7e20].map(roundStep)).toEqual([1n, 1n, 2n, 50n, 5000n, 10n ** 21n]);
  });
});

const frame: Frame = { view: fullView({ first: 1n, end: 1001n }), low: 0, high: 200, log: false };
const exact = computeWindow(1n, 1000);

describe("grids", () => {
  it("hold every number once", () => {
    const cells = createGrid(100, 50);
    expect(paintExact(cells, frame, exact)).toBe(1000);
    expect(cells.cells.reduce((sum, each) => sum + each, 0)).toBe(1000);
    // The number 27 is in column 27 and takes 111 steps.
    expect(cells.cells[Math.floor(111 / 4) * 100 + 2]).toBeGreaterThan(0);
  });
  it("are the same from chunks as from one piece", () => {
    const [one, two] = [createGrid(97, 61), createGrid(97, 61)];
    paintExact(one, frame, exact);
    paintExact(two, frame, computeWindow(1n, 400));
    paintExact(two, frame, computeWindow(401n, 600));
    expect(two).toEqual(one);
  });
  it("show peaks and residues", () => {
    const cells = createGrid(1, 1);
    paintExact(cells, frame, exact, "peak");
    expect(computeExtent(cells).max).toBe(Math.max(...exact.bits));
    const wide = createGrid(1000, 200);
    paintExact(wide, frame, exact, "residue", 3);
    expect(wide.cells[111 * 1000 + 26]).toBe(1);
    const narrow = createGrid(1, 1);
    paintExact(narrow, frame, exact, "residue", 3);
    expect(narrow.cells[0]).toBe(MIXED_RESIDUES);
  });
  it("are thickened without covering anything", () => {
    const cells = createGrid(5, 4);
    [cells.cells[0], cells.cells[1], cells.cells[19]] = [2, 7, 1];
    const wide = enlargeMarks(cells, 2).cells;
    expect([...wide.slice(0, 10)]).toEqual([2, 7, 7, 0, 0, 2, 7, 7, 0, 0]);
    expect(wide[19]).toBe(1);
    expect(computeExtent({ width: 5, height: 4, cells: wide }).count).toBe(7);
  });
  it("have a log axis that leads back", () => {
    for (const base of [1n, 10n ** 6n, far]) {
      const each = { ...frame, view: { base, frac: 0.25, span: 1e6 }, log: true };
      for (const x of [0, 10, 500, 799]) expect(toPixels(each, 800)(fromPixels(each, 800)(x))).toBeCloseTo(x, 6);
    }
  });
});

/** Return columns in the binary format of the API. */
function packed(
  facts: object,
  columns: Record<string, [string, Float64Array | Uint32Array | Uint16Array]>,
): ArrayBuffer {
  let index = 1024;
  const rows = Object.entries(columns).map(([name, [type, data]]) => {
    const row = { name, type, offset: index, length: data.length };
    index += Math.ceil(data.byteLength / 8) * 8;
    return row;
  });
  const bytes = new Uint8Array(index);
  bytes.set(new TextEncoder().encode("TCB1"));
  new DataView(bytes.buffer).setUint32(4, 1016, true);
  bytes.set(new TextEncoder().encode(JSON.stringify({ facts, columns: rows }).padEnd(1016)), 8);
  for (const row of rows) {
    const data = columns[row.name]![1];
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), row.offset);
  }
  return bytes.buffer;
}

describe("densities of jobs", () => {
  const columns = Array.from({ length: 10 }, (_, column) => [
    ...countExact(new Map(), exact, BigInt(1 + 100 * column), BigInt(101 + 100 * column)),
  ]);
  const starts = columns.map((_, column) => 1 + 100 * column);
  const density = parseResult("j", {
    start: starts,
    count: starts.map(() => 100),
    density: columns as [number, number][][],
  })!;
  it("read the same from bytes and from JSON", () => {
    const binary = parseBinary(
      "j",
      packed(
        { start: "1", columns: 10 },
        {
          offset: ["f64", density.offset],
          first: ["u32", density.first],
          delay: ["u16", density.delay],
          count: ["f64", density.times],
        },
      ),
    );
    expect(binary).toEqual(density);
    expect([binary.start, binary.end, binary.greatest]).toEqual([1n, 1001n, 178]);
    expect(() => parseBinary("j", new ArrayBuffer(16))).toThrow(/packed/);
  });
  it("paint what exact values paint, where columns are pixels", () => {
    const [one, two] = [createGrid(10, 200), createGrid(10, 200)];
    paintExact(one, frame, exact);
    paintDensity(two, frame, density);
    expect(two).toEqual(one);
  });
  it("leave no hole and lose no count where columns are wider than pixels", () => {
    const cells = createGrid(77, 200);
    paintDensity(cells, frame, density);
    expect(cells.cells.reduce((sum, each) => sum + each, 0)).toBeCloseTo(1000, 2);
    for (let x = 0; x < 77; x += 1) expect(cells.cells.some((each, index) => index % 77 === x && each > 0)).toBe(true);
    expect(computeExtent(cells).count).toBeGreaterThan(77);
  });
  it("count whole columns", () => {
    const found = countColumns(density, 101n, 301n);
    expect([found.first, found.end]).toEqual([101n, 301n]);
    expect(found.histogram).toEqual(countExact(new Map(), exact, 101n, 301n));
  });
});
