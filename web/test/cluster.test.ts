import { expect, test } from "vitest";
import type { Job, Stream } from "../src/lib/api";
import { countWorkers, describeDesired } from "../src/pages/cluster/model/counts";
import { matchesFilter, parseFilter, toggleToken, toServerFilter } from "../src/pages/cluster/model/filter";
import { summarizeJob } from "../src/lib/summary";
import { formatCurl, formatLiteral, formatPython } from "../src/lib/submission";
import { busyShares, spanEdges, findRuns, spanAt, HIDDEN_WORK, sumWork } from "../src/pages/cluster/model/spans";

const JOB = {
  job_id: "5c7b3fb0",
  type: "collatz",
  state: "failed",
  priority: "low",
  device: "any",
  queue: "any.low",
  parameters: { start_number: 27, n: null },
  error: "Unit 4 kills",
  waiting_because: null,
} as unknown as Job;

test.each([
  ["", true],
  ["state:failed", true],
  ["state:failed state:done", true],
  ["state:done", false],
  ["state:failed kind:thread", false],
  ["-state:failed", false],
  ["-state:done", true],
  ["unit kills", true],
  ["unit lives", false],
  ["id:5c", true],
  ["id:7b", false],
  ["5c7b", true],
  ["-collatz", false],
  ["STATE:Failed", true],
  ["state:", true],
  ["start_number", true],
])("filter %j lets the job through: %s", (text, expected) =>
  expect(matchesFilter(JOB, parseFilter(text))).toBe(expected),
);

test("a name that is none of ours is pointed out, and taken as text", () => {
  expect(parseFilter("owner:me state:done").unknown).toEqual(["owner"]);
  expect(matchesFilter(JOB, parseFilter("owner:me"))).toBe(false);
});

test.each([
  ["state:done state:failed x 5c", { state: ["done", "failed"], tag: [], search: "x 5c" }, true],
  ["tag:nightly tag:v1 kind:thread", { state: [], type: "thread", tag: ["nightly", "v1"] }, true],
  ["tenant:vision", { state: [], tenant: "vision", tag: [] }, true],
  ["state:odd", { state: [], tag: [] }, false],
  ["-state:done queue:any.low", { state: [], tag: [] }, false],
])("the API receives the filter %j", (text, query, isComplete) => {
  const found = toServerFilter(parseFilter(text), ["done", "failed"]);
  expect(JSON.parse(JSON.stringify(found))).toEqual({ query, isComplete });
});

test("tags must all match, and texts search titles", () => {
  const job = { ...JOB, title: "Nightly sums", tags: ["Nightly", "v1"] };
  const matches = (text: string) => matchesFilter(job, parseFilter(text));
  expect([matches("tag:nightly tag:v1"), matches("tag:nightly tag:v2"), matches("sums"), matches("-tag:v1")]).toEqual([
    true,
    false,
    true,
    false,
  ]);
});

test("a token is switched on and off", () => {
  expect(toggleToken(" a  b ", "state:done")).toBe("a b state:done");
  expect(toggleToken("a state:done b", "state:done")).toBe("a b");
});

test("parameters in a line leave out what is not set and shorten what is long", () => {
  expect(summarizeJob(JOB)).toBe("start_number 27");
  expect(summarizeJob({ parameters: { n: "7".repeat(100) } } as unknown as Job)).toBe(
    `n ${"7".repeat(30)}… (100 digits)`,
  );
});

test("commands quote for their language", () => {
  const submission = {
    type: "x",
    parameters: { note: "it's", on: true, none: null, list: [1, "a"] },
    priority: "high",
  };
  expect(formatCurl(submission, "http://h:1", true)).toContain('\'{"type":"x","parameters":{"note":"it\'\\\'\'s",');
  expect(formatCurl(submission, "http://h:1", true)).toContain('"Authorization: Bearer $CLUSTER_TOKEN"');
  expect(formatCurl(submission, "http://h:1", false)).not.toContain("Authorization");
  expect(formatPython(submission, "http://h:1")).toContain(
    'cluster.run("x", {"note": "it\'s", "on": True, "none": None, "list": [1, "a"]}, priority="high")',
  );
  expect(formatLiteral({ a: { b: [] } })).toBe('{"a": {"b": []}}');
});

const STREAM = {
  from: 0,
  to: 100,
  complete_since: 0,
  resolution_seconds: 0,
  lanes: [{ lane: "w/0" }, { lane: "w/1" }],
  spans: [
    { lane: 0, start: -20, end: 50, open: false },
    { lane: 1, start: 90, end: 95, open: true },
    { lane: 1, start: -9, end: -1, open: false },
  ],
} as unknown as Stream;
const FRAME = { left: 10, top: 0, width: 100, lane: 20, from: 0, to: 100 };

test("spans are cut at the edges, open ones reach to now, old ones are gone", () => {
  expect(STREAM.spans.map((span) => spanEdges(span, FRAME))).toEqual([[10, 60], [100, 110], undefined]);
  expect([spanAt(STREAM, 30, 5, FRAME), spanAt(STREAM, 30, 25, FRAME), spanAt(STREAM, 108, 25, FRAME)]).toEqual([
    STREAM.spans[0],
    undefined,
    STREAM.spans[1],
  ]);
  expect(busyShares(STREAM, 0, 100)).toEqual([0.5, 0.1]);
});

test("what this token is not told is work of a name of its own, and no small job of a kind", () => {
  const spans = [
    { lane: 0, job_id: null, type: null, untold: true, start: 0, end: 30, open: false },
    { lane: 0, job_id: null, type: "collatz", start: 40, end: 50, open: false },
  ];
  const stream = { ...STREAM, spans } as unknown as Stream;
  expect(sumWork(stream, 0, 100)).toEqual([
    { job: "", kind: HIDDEN_WORK, share: 0.75 },
    { job: "", kind: "collatz", share: 0.25 },
  ]);
  expect(findRuns(stream, 100).map(({ kind }) => kind)).toEqual([HIDDEN_WORK, "collatz"]);
  expect(busyShares(stream, 0, 100)[0], "the lane is not drawn idle").toBe(0.4);
});

const CPU = { device: "cpu", live: true } as const;
const GPU = { device: "gpu", live: true } as const;
const LOST = { device: "cpu", live: false } as const;

test("live and desired workers are counted by device; a device that nobody has or needs is left out", () => {
  expect(countWorkers([CPU, LOST, CPU], { cpu: 5, gpu: 0 })).toEqual([{ device: "cpu", live: 2, desired: 5 }]);
  expect(countWorkers([], { cpu: 1, gpu: 0 })).toEqual([{ device: "cpu", live: 0, desired: 1 }]);
  expect(countWorkers([CPU, GPU], { cpu: 1, gpu: 0 })).toEqual([
    { device: "cpu", live: 1, desired: 1 },
    { device: "gpu", live: 1, desired: 0 },
  ]);
  expect(countWorkers([CPU], {})).toEqual([{ device: "cpu", live: 1, desired: undefined }]);
});

test("desired workers are one number on a cluster of CPUs, and none while nobody counts", () => {
  expect(describeDesired(countWorkers([CPU], { cpu: 5, gpu: 0 }))).toBe("5");
  expect(describeDesired(countWorkers([CPU, GPU], { cpu: 5, gpu: 1 }))).toBe("5 CPU, 1 GPU");
  expect(describeDesired(countWorkers([], { cpu: 0, gpu: 1 }))).toBe("1 GPU");
  expect(describeDesired(countWorkers([CPU], {}))).toBe("");
});
