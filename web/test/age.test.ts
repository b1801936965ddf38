import { expect, test } from "vitest";
import { ageOf, OLD_MS, type Connection } from "../src/lib/age";

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
