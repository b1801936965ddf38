import { describe, expect, it } from "vitest";
import { valueAt, convertResult } from "../src/pages/job/model/result-view";

describe("a result of any shape", () => {
  it("has single values as figures, named by their path", () => {
    expect(convertResult({ sum: "10", delay: { mean: 2.5, note: null }, ok: true }).figures).toEqual([
      ["sum", "10"],
      ["delay mean", 2.5],
      ["ok", true],
    ]);
    expect(convertResult(7).figures).toEqual([["result", 7]]);
    expect(convertResult(null)).toEqual({ figures: [], histograms: [], tables: [] });
  });

  it("leaves out what was asked for", () => {
    expect(convertResult({ type: "pi", model_version: 1, parameters: { darts: 5 }, hits: 4 }).figures).toEqual([
      ["hits", 4],
    ]);
  });

  it("has lists as tables", () => {
    const { tables } = convertResult({
      values: [3, 4],
      rows: [[1, 2], [3]],
      records: [{ n: 1, at: { x: 5 } }, { n: 2 }],
      columns: { x: [1, 2, 3], y: ["a", "b", "c"] },
      empty: [],
    });
    expect(tables).toEqual([
      {
        title: "values",
        columns: ["place", "value"],
        rows: [
          [0, 3],
          [1, 4],
        ],
      },
      {
        title: "rows",
        columns: ["1", "2"],
        rows: [
          [1, 2],
          [3, null],
        ],
      },
      {
        title: "records",
        columns: ["n", "at x"],
        rows: [
          [1, 5],
          [2, null],
        ],
      },
      {
        title: "columns",
        columns: ["x", "y"],
        rows: [
          [1, "a"],
          [2, "b"],
          [3, "c"],
        ],
      },
    ]);
  });

  it("has objects by name as one table", () => {
    const { tables } = convertResult({ metrics: { wait_us: { mean: 1, max: 2 }, span: { mean: 3 } } });
    expect(tables).toEqual([
      {
        title: "metrics",
        columns: ["name", "mean", "max"],
        rows: [
          ["wait, µs", 1, 2],
          ["span", 3, null],
        ],
      },
    ]);
  });

  it("has the ends of an interval in one cell", () => {
    const { tables } = convertResult({
      metrics: { wait: { mean: 1, ci: [0.51234567, 1.5] }, span: { mean: 3, ci: null } },
    });
    expect(tables).toEqual([
      {
        title: "metrics",
        columns: ["name", "mean", "ci"],
        rows: [
          ["wait", 1, "0.512346, 1.5"],
          ["span", 3, null],
        ],
      },
    ]);
  });

  it("reads what lies inside the items of a short list", () => {
    const { tables, histograms } = convertResult({
      cells: [{ cores: 2, inner: { a: { x: 1 }, b: { x: 2 } }, spread: { edges: [0, 1, 3], counts: [4, 5] } }],
    });
    expect(tables.map((table) => table.title)).toEqual(["cells", "cells 1 inner"]);
    expect(histograms).toEqual([
      {
        title: "cells 1 spread",
        bins: [
          { from: 0, to: 1, count: 4 },
          { from: 1, to: 3, count: 5 },
        ],
      },
    ]);
  });
});

describe("histograms", () => {
  it("are edges with counts, or a start and a step", () => {
    expect(convertResult({ start: 10, step: 5, counts: [1, "2"] }).histograms[0]?.bins).toEqual([
      { from: 10, to: 15, count: 1 },
      { from: 15, to: 20, count: 2 },
    ]);
    expect(convertResult({ edges: [0, 1], counts: [1, 2] }).histograms).toEqual([]);
    expect(convertResult({ start: 0, step: 0, counts: [1] }).histograms).toEqual([]);
  });

  it("are whole numbers with counts where the schema says so, holes included", () => {
    const counts = [
      [3, 1],
      [0, 2],
    ];
    const schema = { properties: { delay: { properties: { spread: { format: "histogram" } } } } };
    const bins = convertResult({ delay: { spread: counts } }, undefined, schema).histograms[0]?.bins;
    expect(bins?.map((bin) => bin.count)).toEqual([2, 0, 0, 1]);
    expect(convertResult({ delay: { spread: counts } }).histograms).toEqual([]);
  });

  it("share bars where there are many values, and lose none", () => {
    const values = Array.from({ length: 1000 }, (_, value) => [value, 1]);
    const bins =
      convertResult({ delays: values }, undefined, { properties: { delays: { format: "histogram" } } }).histograms[0]
        ?.bins ?? [];
    expect(bins.length).toBeLessThanOrEqual(120);
    expect(bins.reduce((sum, bin) => sum + bin.count, 0)).toBe(1000);
  });
});

it("shows the figures that a kind names, and the rest in a table", () => {
  const result = { count: 5, delay: { mean: 2, max: { n: 27, value: 111 } } };
  const { figures, tables } = convertResult(result, [
    ["longest", "delay.max.value"],
    ["none", "peak.max"],
  ]);
  expect(figures).toEqual([["longest", 111]]);
  expect(tables[0]?.rows).toContainEqual(["delay mean", 2]);
  expect(valueAt(result, "delay.max.n")).toBe(27);
  expect(valueAt(result, "delay.more.n")).toBeUndefined();
});

it("takes titles from the schema, of figures, columns and rows", () => {
  const cell = { properties: { wait: { title: "wait, s" }, metrics: { properties: { a: { title: "alpha" } } } } };
  const schema = { properties: { sum: { title: "total" }, cells: { title: "machines", items: cell } } };
  const { figures, tables } = convertResult(
    { sum: 3, cells: [{ wait: 1, metrics: { a: { x: 1 }, b: { x: 2 } } }] },
    undefined,
    schema,
  );
  expect(figures).toEqual([["total", 3]]);
  expect(tables[0]).toEqual({ title: "machines", columns: ["wait, s"], rows: [[1]] });
  expect(tables[1]?.rows).toEqual([
    ["alpha", 1],
    ["b", 2],
  ]);
});
