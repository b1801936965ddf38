import { expect, test } from "vitest";
import { ageOf, OLD_MS, overdue, type Connection } from "../src/lib/age";

test.each<[Connection, number, string]>([
  ["live", 1000, "live"],
  ["live", OLD_MS + 1, "old"],
  ["stale", OLD_MS + 1, "old"],
  ["connecting", 1000, "live"],
  ["connecting", OLD_MS + 1, "old"],
  ["reconnecting", 1, "lost"],
  ["offline", 1, "lost"],
  ["denied", 1, "lost"],
])("%s, heard %s ms ago: %s", (connection, ago, expected) => {
  expect(ageOf(connection, 5e12, 5e12 + ago)).toBe(expected);
});

test("nothing is old before anything was heard", () => expect(ageOf("connecting", 0, 5e12)).toBe("live"));

test("an answer that is asked for each 3 s is overdue after 12 s, and none before 10", () => {
  expect([overdue(0, 11_000, 3), overdue(0, 12_001, 3)]).toEqual([false, true]);
  expect([overdue(0, 9000, 0.25), overdue(0, 10_001, 0.25)]).toEqual([false, true]);
});
