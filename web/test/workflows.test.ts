import { expect, test } from "vitest";
import {
  foldGraph,
  commonName,
  countStates,
  criticalActions,
  failurePath,
  firstFailure,
  describeCounts,
  updateStructure,
  findAnyOutcomeEdges,
  textOffset,
  allowedVerbs,
  actionSeconds,
  skippedActions,
  createStructure,
  actionWeights,
} from "../src/pages/cluster/model/workflows";
import type { Schedule, Action } from "../src/lib/api";
import {
  describeMissed,
  allowedScheduleVerbs,
  describeTimes,
  formatTimeUntil,
} from "../src/pages/cluster/model/schedules";

const BEGUN = Date.parse("2026-11-22T10:00:00Z");

function at(seconds: number): string {
  return new Date(BEGUN + seconds * 1000).toISOString();
}

/** Return an action that ran between two times in seconds, or has not started. */
function action(id: string, dependencies: string[] = [], state = "waiting", from?: number, to?: number): Action {
  return {
    action_id: id,
    action_type: "command",
    state,
    dependencies,
    after_any: [],
    job_id: null,
    waiting_because: null,
    error: null,
    started: from === undefined ? null : at(from),
    ended: to === undefined ? null : at(to),
    progress: null,
    items: null,
    message: null,
  };
}

const FAILED = [
  action("fetch", [], "done", 0, 10),
  action("check", [], "done", 0, 40),
  action("train", ["fetch", "check"], "failed", 40, 100),
  action("tune", ["fetch"], "failed", 10, 120),
  action("report", ["train"], "skipped"),
  action("send", ["report", "tune"], "skipped"),
];

test("states are told in the order in which somebody wants to see them", () => {
  expect(countStates(["done", "running", "done", "failed", "new-one"])).toEqual([
    ["failed", 1],
    ["running", 1],
    ["new-one", 1],
    ["done", 2],
  ]);
  expect(describeCounts({ done: 3, waiting: 1, failed: 2 }, 6)).toBe("3 of 6 actions done, 2 failed, 1 waiting");
  expect(describeCounts({}, 2)).toBe("0 of 2 actions done");
});

test("what may be done follows from the state", () => {
  expect(allowedVerbs("running")).toEqual(["cancel"]);
  expect(allowedVerbs("waiting")).toEqual(["cancel"]);
  expect(allowedVerbs("failed")).toEqual(["retry"]);
  expect(allowedVerbs("cancelling")).toEqual([]);
  expect(allowedVerbs("done")).toEqual([]);
});

test("the first failure, the way to it, and what was skipped for it", () => {
  const structure = createStructure(FAILED);
  expect(firstFailure(FAILED)).toBe(2);
  expect(failurePath(structure, FAILED)).toEqual({ vertices: [1, 2], text: "failure", seconds: 100 });
  expect(failurePath(structure, FAILED, 3)?.vertices).toEqual([0, 3]);
  expect(failurePath(structure, FAILED, 0)?.vertices, "the chosen one did not fail").toEqual([1, 2]);
  expect(skippedActions(structure, FAILED, 2)).toHaveLength(2);
  expect(skippedActions(structure, FAILED, 3)).toHaveLength(1);
  const fine = FAILED.slice(0, 2);
  expect(failurePath(createStructure(fine), fine)).toBeUndefined();
});

test("the critical path counts what is known, and the usual time for the rest", () => {
  const actions = [
    action("a", [], "done", 0, 10),
    action("b", [], "done", 0, 30),
    action("c", ["a"], "running", 10),
    action("d", ["c"]),
    action("e", ["b"], "skipped"),
  ];
  const now = BEGUN + 60_000;
  expect(actionWeights(actions, now)).toEqual([10, 30, 50, 20, 0]);
  expect(criticalActions(createStructure(actions), actions, now)).toEqual({
    vertices: [0, 2, 3],
    text: "critical",
    seconds: 80,
  });
  expect(actionWeights([action("a"), action("b")], now), "nothing is known").toEqual([1, 1]);
  expect(actionSeconds(actions[2] as Action, BEGUN)).toBe(0);
});

test("a graph is laid out anew only when it has changed", () => {
  const before = createStructure(FAILED);
  const moved = FAILED.map((each) => ({ ...each, state: "done", progress: 1 }));
  expect(updateStructure(before, moved)).toBe(before);
  expect(updateStructure(before, moved.slice(1))).not.toBe(before);
  const other = moved.map((each, index) => (index === 4 ? { ...each, after_any: ["tune"] } : each));
  expect(updateStructure(before, other)).not.toBe(before);
  expect(updateStructure(undefined, moved).graph.size).toBe(6);
});

test("a few actions are never folded, many that stand alike are, and one group is unfolded", () => {
  const fan = (count: number) => [
    action("first"),
    ...Array.from({ length: count }, (_, each) => action(`run-${each}`, ["first"])),
  ];
  expect(foldGraph(createStructure(fan(50)), true, []).members).toHaveLength(51);
  const many = createStructure(fan(100));
  expect(foldGraph(many, true, []).members).toHaveLength(2);
  expect(foldGraph(many, false, []).members).toHaveLength(101);
  expect(foldGraph(many, true, ["run-7"]).members).toHaveLength(101);
  expect(foldGraph(many, true, ["gone"]).members).toHaveLength(2);
});

test("names that stand alike share their beginning", () => {
  expect(commonName(["run-0001", "run-0002", "run-0107"])).toBe("run-…");
  expect(commonName(["train", "test"])).toBe("t…");
  expect(commonName(["a", "b"])).toBe("a");
  expect(commonName(["alone-7"])).toBe("alone-7");
});

test("an edge is loose when all that it stands for ask for an end only", () => {
  const any = (id: string, dependencies: string[], after_any: string[]) => ({ ...action(id, dependencies), after_any });
  const actions = [action("a"), action("b"), any("c", ["a"], ["b"])];
  const structure = createStructure(actions);
  expect(structure.graph.parents[2]).toEqual([0, 1]);
  expect([...findAnyOutcomeEdges(structure, foldGraph(structure, false, []).boxOfVertex)]).toEqual(["1 2"]);
  expect([...findAnyOutcomeEdges(structure, Int32Array.from([0, 0, 1]))], "one box for both").toEqual([]);
});

test("a schedule says when it runs, and what did not", () => {
  const nightly = { every_seconds: null, cron: "0 3 * * *", timezone: "Europe/Berlin" } as Schedule;
  expect(describeTimes(nightly)).toBe("0 3 * * *, Europe/Berlin");
  expect(describeTimes({ ...nightly, cron: null, every_seconds: 3600 })).toBe("every 1\u202fh");
  expect(describeMissed({ skipped: 0, missed: 2, failed: 1 } as Schedule)).toBe("1 refused, 2 missed");
  expect(describeMissed({ skipped: 0, missed: 0, failed: 0 } as Schedule)).toBe("");
  expect(formatTimeUntil(at(90), BEGUN)).toBe("in 1\u202fmin 30\u202fs");
  expect(formatTimeUntil(at(-1), BEGUN)).toBe("due");
  expect(formatTimeUntil(null, BEGUN)).toBe("");
  expect(allowedScheduleVerbs({ state: "active" })).toEqual(["pause", "run"]);
  expect(allowedScheduleVerbs({ state: "paused" })).toEqual(["resume", "run"]);
  expect(allowedScheduleVerbs({ state: "ended" })).toEqual(["run"]);
});

test("a complaint's place is found in the text", () => {
  const text = "name: a\nactions:\n  - b\n";
  expect(text.slice(textOffset(text, { line: 3, column: 5 }))).toBe("b\n");
  expect(textOffset(text, { line: 1, column: 1 })).toBe(0);
  expect(textOffset(text, { line: 2, column: 99 })).toBe("name: a\nactions:".length);
  expect(textOffset(text, { line: 99, column: 1 })).toBe(text.length);
});
