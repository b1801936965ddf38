import { expect, test } from "vitest";
import type { Job, Status } from "../../src/lib/api";
import { formatActive } from "../../src/pages/kinds/model/active";

const job = (type: string, state: string) => ({ type, state }) as Pick<Job, "type" | "state">;
const status = (jobs: object) => ({ jobs }) as Status;
const known = [job("sum", "queued"), job("sum", "running"), job("sum", "done"), job("thread", "paused")];

test("jobs of a kind are counted where the page knows all that wait or run", () => {
  const all = status({ queued: 1, running: 1, done: 9 });
  expect(["sum", "thread"].map((kind) => formatActive(kind, known, all))).toEqual(["2", "0"]);
});

test("of ten thousand jobs the page knows a few, and says so", () => {
  const many = status({ queued: 9999, running: 1 });
  expect(["sum", "thread"].map((kind) => formatActive(kind, known, many))).toEqual(["at least 2", "not known"]);
});
