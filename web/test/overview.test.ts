import { expect, test } from "vitest";
import type { History, Stream, Worker } from "../src/lib/api";
import type { LiveEvent } from "../src/lib/fleet";
import { summarizeEvents } from "../src/pages/cluster/model/event-summaries";
import { createLines, middleNames } from "../src/pages/cluster/model/lines";
import {
  busyShares,
  spanEdges,
  laneKnownUntil,
  assignPositions,
  findRuns,
  foldSmallJobs,
  spanAt,
  sumWork,
} from "../src/pages/cluster/model/spans";
import { isComputing } from "../src/pages/cluster/model/computing";
import { describeState, describeWorkers } from "../src/pages/cluster/model/workers";

type Row = [lane: number, job: string | null, start: number, end: number, open?: boolean];

function stream(...rows: Row[]): Stream {
  const spans = rows.map(([lane, job_id, start, end, open = false]) => ({
    lane,
    job_id,
    start,
    end,
    open,
    type: "sum",
  }));
  return {
    from: 0,
    to: 100,
    complete_since: 0,
    resolution_seconds: 0,
    lanes: [{ lane: "w/0" }, { lane: "v/0", silent_since: 92 }],
    spans,
  } as unknown as Stream;
}

test("what a lane computes is known up to now while answers come and its worker beats, and no further", () => {
  const shown = stream([0, "a", 20, 70], [1, "b", 90, 100, true]);
  const frame = { left: 10, top: 0, width: 100, lane: 20, from: 0, to: 100 };
  expect(laneKnownUntil(shown, 103)).toEqual([103, 92]);
  expect(laneKnownUntil(shown, 140), "the answer is 40 s old").toEqual([100, 92]);
  expect(laneKnownUntil(shown, 103, false), "the cluster is away").toEqual([100, 92]);
  // After the last known time, lanes are neither drawn nor counted as busy.
  expect(spanEdges(shown.spans[1]!, frame, 92)).toEqual([100, 102]);
  expect(busyShares(shown, 0, 100, [100, 92])).toEqual([0.5, 0.02]);
  expect(spanAt(shown, 108, 25, frame, [100, 92])).toBeUndefined();
});

test("a job keeps its place in the palette while it is shown; a new one takes the first that is free", () => {
  const first = assignPositions(stream([0, "a", 1, 5], [1, "b", 2, 5], [0, null, 5, 9]), new Map());
  expect(Object.fromEntries(first)).toEqual({ a: 0, b: 1 });
  const then = assignPositions(stream([0, "d", 9, 10], [1, "b", 2, 10], [0, "c", 6, 9]), first);
  expect(Object.fromEntries(then)).toEqual({ b: 1, c: 0, d: 2 });
});

test("jobs of a stream are told with their share of the lanes' time, small ones of a kind together", () => {
  const shown = stream([0, "a", 0, 30], [1, null, 0, 5], [1, null, 10, 15], [1, "b", 20, 80]);
  expect(sumWork(shown, 0, 100).map(({ job, share }) => [job, share])).toEqual([
    ["b", 0.6],
    ["a", 0.3],
    ["", 0.1],
  ]);
});

test("a job's name is written once over pieces that follow each other", () => {
  const shown = stream([0, "a", 0, 30], [0, "a", 30.5, 60], [0, "b", 60, 70], [0, "a", 71, 80], [1, "a", 80, 90]);
  expect(findRuns(shown, 100).map(({ job, start, end }) => [job, start, end])).toEqual([
    ["a", 0, 60],
    ["b", 60, 70],
    ["a", 71, 80],
    ["a", 80, 90],
  ]);
});

function event(type: string, time: number, more: object = {}): LiveEvent {
  return { id: "", job: "j", kind: "sum", type, state: type, time, ...more };
}

test("what happened is one line a job, with how long it waited and ran", () => {
  const events = [
    event("queued", 1000),
    event("queued", 1500, { job: "k" }),
    event("running", 3000),
    { id: "", worker: "w", type: "worker", state: "lost", time: 4000 },
    event("failed", 8000, { error: "no luck" }),
  ];
  expect(summarizeEvents(events, 9).map(({ name, text }) => [name, text])).toEqual([
    ["j", "failed: no luck, waited 2.0\u202fs, ran 5.0\u202fs"],
    ["w", "lost"],
    ["k", "queued"],
  ]);
  expect(summarizeEvents(events, 1).map(({ name }) => name)).toEqual(["j"]);
  // After a retry, the times belong to the new attempt.
  const again = [...events, event("queued", 9000), event("running", 9500), event("done", 10_000)];
  expect(summarizeEvents(again, 1)[0]?.text).toBe("done, waited 500\u202fms, ran 500\u202fms");
});

function history(series: Record<string, (number | null)[]>): History {
  const bins = Object.entries(series).map(([name, mean]) => [name, { mean }]);
  return { series: Object.fromEntries(bins) } as unknown as History;
}

function many(value: number): Record<string, (number | null)[]> {
  return Object.fromEntries(Array.from({ length: 9 }, (_, each) => [`queue.a${each}`, [value, null]]));
}

test("the queue that waits has a line of its own, and only the smallest are summed", () => {
  expect(createLines(history({ ...many(0), "queue.z": [0, 7] }), "queue.", "", false)).toEqual([
    { label: "z", values: [0, 7] },
  ]);
  const shown = createLines(history({ ...many(1), "queue.z": [0, 7] }), "queue.");
  expect(shown.map(({ label }) => label)).toEqual(["a0", "a1", "a2", "a3", "a4", "z", "4 more, summed"]);
  expect(shown.at(-1)?.values).toEqual([4, null]);
  expect(middleNames(history({ "host.x.cpu": [1], "host.x.memory": [1] }), "host.", ".cpu")).toEqual(["x"]);
});

test("workers that take no work are not counted as if they did", () => {
  const worker = (state: string, more: object = {}) => ({ state, live: true, draining: false, ...more }) as Worker;
  const gone = (state: string) => worker(state, { live: false });
  expect(describeWorkers([worker("drained", { draining: true })], null)).toBe("0 of 1, 1 drained");
  expect(describeWorkers([worker("busy"), worker("idle")], null)).toBe("2");
  expect(describeWorkers([worker("busy"), gone("lost"), gone("stopped")], 3)).toBe("1 of 3, 1 lost");
  expect(describeWorkers([worker("busy", { draining: true }), worker("starting")], null)).toBe(
    "0 of 2, 1 starting, 1 draining",
  );
  expect(describeWorkers([worker("drained", { cordoned: "its disk is full" })], null)).toBe("0 of 1, 1 cordoned");
  const compiling = worker("idle", { compiling: ["collatz", "thread"] });
  expect(describeWorkers([compiling, worker("idle"), { ...compiling, live: false }], null)).toBe("2, 1 compiling");
  expect(describeState(compiling)).toBe("idle, compiling collatz, thread");
  expect(describeState({ ...compiling, live: false })).toBe("idle");
});

test("small jobs of a worker are on its first lane, and a worker without lanes keeps its name", () => {
  const lanes = [
    { lane: "cpu-1", worker: "cpu-1" },
    { lane: "cpu-1/0", worker: "cpu-1" },
    { lane: "cpu-1/1", worker: "cpu-1" },
    { lane: "gpu-1", worker: "gpu-1" },
  ];
  const folded = foldSmallJobs({
    ...stream([0, null, 0, 1], [1, "a", 2, 3], [2, "b", 2, 3], [3, "c", 2, 3]),
    lanes,
  } as unknown as Stream);
  expect(folded.lanes.map(({ lane }) => lane)).toEqual(["cpu-1/0", "cpu-1/1", "gpu-1"]);
  expect(folded.spans.map(({ lane, job_id: job }) => [lane, job])).toEqual([
    [0, null],
    [0, "a"],
    [1, "b"],
    [2, "c"],
  ]);
});

test("a job with a running unit does not wait for its turn", () => {
  const runner = { live: true, job: null, running: [["a", 3]] } as unknown as Worker;
  const cpu = { live: true, job: "b" } as unknown as Worker;
  expect(["a", "b", "c"].map((id) => isComputing(id, [runner, cpu]))).toEqual([true, true, false]);
  expect(isComputing("a", [{ ...runner, live: false }])).toBe(false);
});
