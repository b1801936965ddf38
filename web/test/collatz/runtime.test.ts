import { expect, test } from "vitest";
import { runSeconds } from "../../src/pages/collatz/model/runtime";

const at = (second: number) => new Date(second * 1000).toISOString();
const job = (started: number | null, ended: number | null) => ({
  started: started === null ? null : at(started),
  ended: ended === null ? null : at(ended),
});

test.each([
  ["no job", [], 0],
  ["one that waits", [job(null, null)], 0],
  ["one that runs", [job(1000, null)], 500],
  ["one of eight minutes that ended long ago", [job(100, 580.25)], 480.25],
  ["one after the other, with time between them", [job(200, 300), job(100, 150)], 150],
  ["two at once", [job(100, 200), job(150, 250)], 150],
  ["a short one within a long one", [job(100, 300), job(150, 200), job(250, 310)], 210],
  ["one whose start is ahead of the clock", [job(1501, null)], 0],
])("runtime of %s", (_, jobs, seconds) => expect(runSeconds(jobs, 1_500_000)).toBe(seconds));
