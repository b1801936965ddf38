import { expect, test } from "vitest";
import type { Job, Stream, Unit } from "../../src/lib/api";
import { createSubmission, formatPython } from "../../src/lib/submission";
import { createDraft } from "../../src/lib/draft";
import { compareJobs } from "../../src/pages/job/model/comparison";
import { groupFailures } from "../../src/pages/job/model/failures";
import { nearestPoint, numberTicks, rangeOf } from "../../src/pages/job/model/scatter";
import { secondsToRequest, selectJobSpans } from "../../src/pages/job/model/timeline";
import { createBins, createValueTable, findNumbers, summarizeColumn } from "../../src/pages/job/model/values";

function unit(number: number, fields: Partial<Unit>): Unit {
  return {
    unit: number,
    state: "done",
    exit: 0,
    reason: "",
    seconds: 1,
    attempts: 1,
    worker: "runner-1",
    value: null,
    error: null,
    artifact: null,
    ...fields,
  };
}

test("failures with the same error are one group, most frequent first", () => {
  const failed = (number: number, error: string, exit = 1) => unit(number, { state: "dead", exit, error });
  const groups = groupFailures([
    failed(1, "exit code 3: cannot read /data/shard-7", 3),
    failed(4, "exit code 1: Traceback\n  File x\nValueError: diverged at 0.0005"),
    failed(17, "exit code 1: ValueError: diverged at 1.5e-3"),
    failed(30, "exit code 1: KeyError: 7"),
    failed(31, "exit code 1", 1),
  ]);
  expect(groups).toEqual([
    { error: "exit 1: ValueError: diverged at 0.0005", units: [4, 17] },
    { error: "exit 3: cannot read /data/shard-7", units: [1] },
    { error: "exit 1: KeyError: 7", units: [30] },
    { error: "exit 1", units: [31] },
  ]);
});

test("numbers of values become columns, also nested ones and decimal strings", () => {
  expect(findNumbers({ loss: 0.5, at: { lr: "1e-3", name: "x" }, ok: true, list: [7] })).toEqual([
    ["loss", 0.5],
    ["at.lr", 0.001],
    ["ok", 1],
    ["list.0", 7],
  ]);
  expect(findNumbers(3)).toEqual([["value", 3]]);
  expect(findNumbers({ artifact: true })).toEqual([]);
  const table = createValueTable([unit(0, { value: { a: 1 } }), unit(5, { value: { b: 2 }, seconds: null })]);
  expect(table.units).toEqual([0, 5]);
  expect([...table.columns]).toEqual([
    ["a", [1, null]],
    ["b", [null, 2]],
    ["run time (s)", [1, null]],
    ["attempts", [1, 1]],
  ]);
});

test("a column is summarized and counted in bins of equal width", () => {
  expect(summarizeColumn([4, null, 1, 2, 3])).toEqual({ count: 4, mean: 2.5, min: 1, median: 2.5, max: 4 });
  expect(summarizeColumn([null])).toBeUndefined();
  const bins = createBins([0, 1, 1, 30]);
  expect(bins.map(({ count }) => count).reduce((sum, each) => sum + each)).toBe(4);
  expect([bins[0], bins[1]?.count, bins.at(-1)]).toEqual([
    { from: 0, to: 1, count: 1 },
    2,
    { from: 29, to: 30, count: 1 },
  ]);
  expect(createBins([7, 7])).toEqual([{ from: 6.5, to: 7.5, count: 2 }]);
  expect(createBins([])).toEqual([]);
});

test("axes of a scatter chart contain all points", () => {
  const [low, high] = rangeOf([1, null, 3]);
  expect(low).toBeLessThan(1);
  expect(high).toBeGreaterThan(3);
  expect(rangeOf([null])).toEqual([0, 1]);
  expect(rangeOf([0, 0])).toEqual([-1, 1]);
  expect(numberTicks(-0.2, 1.1, 4)).toEqual([0, 0.5, 1]);
  expect(nearestPoint([[0, 0], undefined, [10, 10]], 9, 9, 5)).toBe(2);
  expect(nearestPoint([[0, 0]], 9, 9, 5)).toBeUndefined();
});

test("the timeline has only the lanes of the job, and open work lasts until now", () => {
  const span = { job_id: "a", type: "command", jobs: 1, busy_seconds: 0, units: 1, leases: 1, open: false };
  const stream: Stream = {
    from: 0,
    to: 100,
    complete_since: 0,
    resolution_seconds: 0,
    lanes: ["x/0", "x/1", "y/0"].map((lane) => ({ lane, worker: lane.slice(0, 1), device: "runner" })),
    spans: [
      { ...span, lane: 2, start: 50, end: 60, open: true },
      { ...span, lane: 0, start: 10, end: 20, lost: true },
      { ...span, lane: 1, start: 0, end: 90, job_id: "b" },
    ],
  };
  const timeline = selectJobSpans(stream, "a");
  expect(timeline?.lanes.map(({ lane, spans }) => [lane, spans.map(({ end, lost }) => [end, lost])])).toEqual([
    ["x/0", [[20, true]]],
    ["y/0", [[100, false]]],
  ]);
  expect([timeline?.from, timeline?.to]).toEqual([10, 100]);
  expect(selectJobSpans(stream, "c")).toBeUndefined();
});

test("the timeline of a job is requested only while it is stored", () => {
  const started = new Date(1_000_000).toISOString();
  expect(secondsToRequest({ started: null, ended: null }, 2_000_000)).toBe(0);
  expect(secondsToRequest({ started, ended: null }, 1_010_000)).toBe(15);
  expect(secondsToRequest({ started, ended: started }, 1_000_000 + 3_601_000)).toBe(0);
  expect(secondsToRequest({ started, ended: null }, 1_000_000 + 9_000_000)).toBe(3600);
});

const JOB = {
  job_id: "1",
  type: "command",
  state: "done",
  name: "sweep",
  tags: ["a"],
  priority: "normal",
  device: "runner",
  seconds: 2,
  done: 2,
  total: 2,
  usage: { lane_seconds: 3 },
  parameters: { command: ["./run", "--lr", "0.1"], count: 2 },
} as unknown as Job;

test("a comparison has the parameters that differ and the means of values", () => {
  const other = { ...JOB, job_id: "2", parameters: { command: ["./run", "--lr", "0.2"], count: 2 } } as unknown as Job;
  const values = (loss: number) => createValueTable([unit(0, { value: { loss } })]);
  const rows = compareJobs([
    { job: JOB, result: undefined, values: values(0.5) },
    { job: other, result: undefined, values: values(0.25) },
  ]);
  const row = (name: string) => rows.find((each) => each.name === name);
  expect(row("command")).toEqual({ name: "command", cells: ["./run --lr 0.1", "./run --lr 0.2"], isEqual: false });
  expect(row("count")).toBeUndefined();
  expect(row("mean loss")?.cells).toEqual(["0.5", "0.25"]);
  expect(row("state")?.isEqual).toBe(true);
});

test("a job is submitted again with its name and tags", () => {
  const submission = createSubmission(createDraft(JOB));
  expect(submission).toEqual({ type: "command", name: "sweep", tags: ["a"], parameters: JOB.parameters });
  expect(formatPython(submission, "http://a")).toContain(', name="sweep", tags=["a"])');
});
