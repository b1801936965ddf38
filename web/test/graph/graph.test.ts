import { expect, test } from "vitest";
import { createBoxes, findGroups } from "../../src/graph/fold";
import { BOX, computeLayout, type Layout } from "../../src/graph/layout";
import { countCrossings, orderLayers } from "../../src/graph/order";
import { criticalPath, delayPath } from "../../src/graph/paths";
import { spacePositions } from "../../src/graph/spacing";
import { buildGraph, linkVertices, findReachable, type Item } from "../../src/graph/structure";
import {
  findNextBox,
  boxAt,
  fitView,
  MAX_SCALE,
  mapRect,
  viewAtMapPoint,
  initialView,
  panView,
  READABLE_SCALE,
  revealBox,
  zoomView,
} from "../../src/graph/view";
import { chains, diamonds, tangle } from "./samples";

const WINDOW = { width: 900, height: 500 };

function item(id: string, ...dependencies: string[]): Item {
  return { id, type: "command", dependencies };
}

function typesOf(items: readonly Item[]): string[] {
  return items.map(({ type }) => type);
}

// -- structure --------------------------------------------------------------------------------------------------------

test("an item stands one layer after the last that it waits for, in whatever order they come", () => {
  const graph = buildGraph([item("d", "c", "a"), item("c", "b"), item("b", "a"), item("a"), item("alone")]);
  expect([...graph.layer]).toEqual([3, 2, 1, 0, 0]);
  expect(graph.layers).toBe(4);
  const position = (vertex: number) => graph.order.indexOf(vertex);
  for (const [vertex, parents] of graph.parents.entries())
    for (const parent of parents) expect(position(parent)).toBeLessThan(position(vertex));
});

test("an unknown dependency, one named twice and a cycle lose no item", () => {
  const graph = buildGraph([item("a", "nobody"), item("b", "a", "a"), item("c", "d"), item("d", "c")]);
  expect(graph.parents[1]).toEqual([0]);
  expect([...graph.order].sort()).toEqual([0, 1, 2, 3]);
  expect(computeLayout(graph).x).toHaveLength(4);
  expect(buildGraph([]).layers).toBe(0);
  expect(computeLayout(buildGraph([]))).toMatchObject({ width: 0, height: 0, edges: [] });
});

test("what waits for an item, and what it waits for", () => {
  const graph = buildGraph([item("a"), item("b", "a"), item("c", "b"), item("d", "a")]);
  expect([...findReachable(graph, 2)].sort()).toEqual([0, 1]);
  expect([...findReachable(graph, 0, true)].sort()).toEqual([1, 2, 3]);
});

// -- folding ----------------------------------------------------------------------------------------------------------

test("chains side by side are a group for each of their steps", () => {
  const items = chains(100, 3);
  const graph = buildGraph(items);
  const boxes = createBoxes(graph, findGroups(graph, typesOf(items)), 8);
  expect(boxes.members.map((each) => each.length)).toEqual([1, 100, 100, 100, 1]);
  expect(boxes.graph.parents).toEqual([[], [0], [1], [2], [3]]);
  expect([...boxes.boxOfVertex.slice(0, 4)]).toEqual([0, 1, 2, 3]);
});

test("another type, another layer or another neighbour is another group", () => {
  const items: Item[] = [
    item("a"),
    { id: "other", type: "collatz", dependencies: [] },
    item("b", "a"),
    item("c", "a"),
    item("d", "other"),
    item("e", "b", "c"),
    item("f", "c"),
  ];
  const graph = buildGraph(items);
  const groups = findGroups(graph, typesOf(items));
  expect(new Set(groups).size).toBe(items.length); // c has two children, b has one; e has two parents, f has one
  expect(createBoxes(graph, groups, 1).members).toHaveLength(items.length);
});

test("few siblings stay, and a group that is opened is as many boxes", () => {
  const items = diamonds(3, 10);
  const graph = buildGraph(items);
  const groups = findGroups(graph, typesOf(items));
  expect(createBoxes(graph, groups, 10).members).toHaveLength(30);
  expect(createBoxes(graph, groups, 9).members).toHaveLength(3);
  const opened = groups[10] as number;
  const boxes = createBoxes(graph, groups, 9, (group) => group === opened);
  expect(boxes.members.map((each) => each.length)).toEqual([10, ...Array.from({ length: 10 }, () => 1), 10]);
  expect(boxes.graph.parents[1]).toEqual([0]);
});

// -- order and places -------------------------------------------------------------------------------------------------

test("edges that need not cross do not", () => {
  const layered = {
    rows: [
      [0, 1, 2, 3],
      [7, 6, 5, 4],
    ],
    up: [[], [], [], [], [0], [1], [2], [3]],
    down: [[4], [5], [6], [7], [], [], [], []],
  };
  expect(countCrossings(layered)).toBe(6);
  orderLayers(layered);
  expect(countCrossings(layered)).toBe(0);
});

test("an order never crosses more edges than the one that was given", () => {
  for (let seed = 1; seed < 20; seed += 1) {
    const { layer, layers, parents, children } = buildGraph(tangle(60, seed));
    const near = (list: readonly (readonly number[])[], by: number) =>
      list.map((own, vertex) => own.filter((each) => layer[each] === (layer[vertex] as number) + by));
    const rows: number[][] = Array.from({ length: layers }, () => []);
    for (const [vertex, at] of layer.entries()) rows[at]?.push(vertex);
    const layered = { rows, up: near(parents, -1), down: near(children, 1) };
    const before = countCrossings(layered);
    orderLayers(layered);
    expect(countCrossings(layered)).toBeLessThanOrEqual(before);
    expect(rows.flat().sort((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, vertex) => vertex));
  }
});

test("places are as near to the wishes as their gaps allow", () => {
  expect(spacePositions([0, 10, 20], [0, 5, 5])).toEqual([0, 10, 20]);
  expect(spacePositions([5, 5, 5], [0, 10, 10])).toEqual([-5, 5, 15]);
  expect(spacePositions([0, 0, 100], [0, 10, 10])).toEqual([-5, 5, 100]);
  expect(spacePositions([], [])).toEqual([]);
});

function overlaps({ x, y }: Layout): number {
  let found = 0;
  for (let one = 0; one < x.length; one += 1)
    for (let other = 0; other < one; other += 1) {
      const near = (list: Float32Array, room: number) =>
        Math.abs((list[one] as number) - (list[other] as number)) < room - 0.01;
      if (near(x, BOX.width) && near(y, BOX.height)) found += 1;
    }
  return found;
}

test.each([
  ["a tangle", tangle(300)],
  ["layers", diamonds(6, 20)],
  ["a layer of several columns", chains(200, 2)],
])("%s: no box lies over another, and every edge runs to the right from box to box", (_, items) => {
  const graph = buildGraph(items);
  const layout = computeLayout(graph);
  expect(overlaps(layout)).toBe(0);
  expect(layout.edges).toHaveLength(graph.parents.flat().length);
  for (const { from, to, points } of layout.edges) {
    expect([points[0], points.at(-2)]).toEqual([(layout.x[from] as number) + BOX.width, layout.x[to]]);
    for (let at = 2; at < points.length; at += 2) expect(points[at]).toBeGreaterThan((points[at - 2] as number) - 0.01);
  }
  expect(Math.min(...layout.x, ...layout.y)).toBe(0);
});

test("an edge that passes a layer passes between its boxes", () => {
  const graph = buildGraph(tangle(150, 3));
  const layout = computeLayout(graph);
  for (const { points } of layout.edges) {
    for (let at = 2; at + 3 < points.length; at += 4) {
      const [left, height] = [points[at] as number, points[at + 1] as number];
      for (let box = 0; box < graph.size; box += 1)
        if (Math.abs((layout.x[box] as number) - left) < 1)
          expect(Math.abs((layout.y[box] as number) + BOX.height / 2 - height)).toBeGreaterThan(BOX.height / 2);
    }
  }
});

// -- paths ------------------------------------------------------------------------------------------------------------

test("the critical path is the longest in time, not in steps", () => {
  const graph = buildGraph([item("a"), item("b", "a"), item("c", "b"), item("slow"), item("d", "c", "slow")]);
  const weights = [1, 1, 1, 10, 2];
  expect(criticalPath(graph, (vertex) => weights[vertex] as number)).toEqual({ vertices: [3, 4], length: 12 });
  expect(criticalPath(graph, () => 1)).toEqual({ vertices: [0, 1, 2, 4], length: 4 });
  expect(criticalPath(linkVertices([]), () => 1)).toEqual({ vertices: [], length: 0 });
});

test("the way to a failure goes back by what ended last", () => {
  const graph = buildGraph([item("a"), item("b"), item("c", "a", "b"), item("d", "c")]);
  const ended = [5, 9, 12, 20];
  expect(delayPath(graph, 3, (vertex) => ended[vertex] as number)).toEqual([1, 2, 3]);
  expect(delayPath(graph, 0, (vertex) => ended[vertex] as number)).toEqual([0]);
});

// -- view -------------------------------------------------------------------------------------------------------------

test("all of a drawing is fitted into the window, and a small one is not blown up", () => {
  expect(fitView({ width: 9000, height: 100 }, WINDOW).scale).toBeCloseTo((900 - 32) / 9000);
  const small = fitView({ width: 100, height: 50 }, WINDOW);
  expect(small).toEqual({ x: -400, y: -225, scale: 1 });
});

test("a zoom keeps the point under the pointer, within bounds", () => {
  const view = { x: 10, y: 20, scale: 0.5 };
  const next = zoomView(view, 2, 100, 50);
  expect(next.x + 100 / next.scale).toBeCloseTo(view.x + 100 / view.scale);
  expect(next.y + 50 / next.scale).toBeCloseTo(view.y + 50 / view.scale);
  expect(zoomView(view, 1e9, 0, 0).scale).toBe(MAX_SCALE);
  expect(zoomView(view, 1e-9, 0, 0).scale).toBeGreaterThan(0);
});

test("a drawing cannot be moved out of the window", () => {
  const drawing = { width: 500, height: 300 };
  const far = panView({ x: 0, y: 0, scale: 1 }, -1e6, 1e6, drawing, WINDOW);
  expect(far.x).toBeLessThan(drawing.width);
  expect(far.y + WINDOW.height).toBeGreaterThan(0);
});

test("a box is found under the pointer, brought into sight, and left by arrows", () => {
  const graph = buildGraph([item("a"), item("b", "a"), item("c", "a")]);
  const layout = computeLayout(graph);
  const view = { x: 0, y: 0, scale: 1 };
  const middle = (box: number) => [(layout.x[box] as number) + 5, (layout.y[box] as number) + 5] as const;
  expect(boxAt(layout, view, ...middle(1))).toBe(1);
  expect(boxAt(layout, view, -5, -5)).toBeUndefined();
  const seen = revealBox({ x: 5000, y: 5000, scale: 1 }, layout, 2, WINDOW);
  expect(boxAt(layout, seen, 20, 20)).toBe(2);
  const near = (box: number) => ({ parents: graph.parents[box] ?? [], children: graph.children[box] ?? [] });
  expect(findNextBox(layout, near(1), 1, "ArrowLeft")).toBe(0);
  expect(findNextBox(layout, near(1), 1, "ArrowDown")).toBe(2);
  expect(findNextBox(layout, near(2), 2, "ArrowDown")).toBeUndefined();
  expect([1, 2]).toContain(findNextBox(layout, near(0), 0, "ArrowRight"));
  expect(findNextBox(layout, near(2), 2, "Home")).toBe(0);
  expect(findNextBox(layout, near(2), 2, "x")).toBeUndefined();
});

test("a graph too long to be read whole opens around what is of interest", () => {
  const chain = buildGraph(
    Array.from({ length: 30 }, (_, at) => ({ id: `${at}`, type: "command", dependencies: at ? [`${at - 1}`] : [] })),
  );
  const layout = computeLayout(chain);
  const view = initialView(layout, 20, WINDOW);
  expect(view.scale).toBe(READABLE_SCALE);
  const [left, right] = [view.x, view.x + WINDOW.width / view.scale];
  expect(layout.x[20]).toBeGreaterThan(left);
  expect((layout.x[20] as number) + BOX.width).toBeLessThan(right);
  expect(initialView(layout, undefined, WINDOW).x, "its beginning").toBeLessThanOrEqual(0);
  const few = computeLayout(buildGraph([item("a"), item("b", "a")]));
  expect(initialView(few, 1, WINDOW)).toEqual(fitView(few, WINDOW));
  const many = computeLayout(buildGraph(tangle(300)));
  expect(initialView(many, 5, WINDOW)).toEqual(fitView(many, WINDOW));
});

test("the map is there while something is out of sight, and a touch of it goes there", () => {
  const drawing = { width: 4000, height: 400 };
  expect(mapRect(drawing, fitView(drawing, WINDOW), WINDOW)).toBeUndefined();
  const view = { x: 0, y: 0, scale: 1 };
  const map = mapRect(drawing, view, WINDOW);
  expect(map).toMatchObject({ width: 160, height: 16 });
  if (!map) return;
  expect(mapRect(drawing, view, { width: 200, height: 200 }), "no room for it").toBeUndefined();
  expect(viewAtMapPoint(view, map, 5, 5, WINDOW)).toBeUndefined();
  const there = viewAtMapPoint(view, map, map.left + map.width / 2, map.top + map.height / 2, WINDOW);
  expect((there?.x ?? 0) + WINDOW.width / 2).toBeCloseTo(2000);
});
