import { expect, test } from "vitest";
import type { Job } from "../src/lib/api";
import { shortenMiddle, formatTimestamp, shortId, jobTitle, formatDuration, formatWait } from "../src/lib/naming";

const plain = (text: string) => text.replaceAll("\u202f", " ");

test("a job has its name, and its kind if that gives no names", () => {
  expect(jobTitle({ title: "Collatz 1…10⁷, statistics", type: "collatz" })).toBe("Collatz 1…10⁷, statistics");
  expect(jobTitle({ title: "", type: "thread" })).toBe("thread");
});

test.each([
  ["53ebc1f3d5771fb5", "53ebc1f3"],
  ["w-5c7b3fb0e8c8-build-1", "w-5c7b3f…-build-1"],
  ["nightly", "nightly"],
])("the id %s is short as %s", (id, expected) => expect(shortId(id)).toBe(expected));

test.each([
  ["cpu-1/0", 7, "cpu-1/0"],
  ["rack-001.example.test/3", 11, "rack-…est/3"],
  ["rack-001", 2, "r…"],
  ["rack-001", 1, "…"],
])("the name %s in %s letters is %s", (name, max, expected) => {
  expect(shortenMiddle(name, max)).toBe(expected);
  expect(expected.length).toBeLessThanOrEqual(max);
});

test("a moment has its day unless it is today, and its year unless it is this one", () => {
  const now = new Date(2026, 10, 21, 20, 0, 0).getTime();
  expect(formatTimestamp(new Date(2026, 10, 21, 14, 3, 27).getTime(), now)).toBe("14:03:27");
  expect(formatTimestamp(new Date(2026, 10, 20, 23, 59, 59).getTime(), now)).toBe("20 Nov 23:59");
  expect(formatTimestamp(new Date(2025, 11, 31, 8, 0, 0).getTime(), now)).toBe("31 Dec 2025 08:00");
  expect([formatTimestamp(null, now), formatTimestamp("", now), formatTimestamp("soon", now)]).toEqual(["", "", ""]);
});

test("a duration is of the whole job, or so far", () => {
  const job = { state: "done", started: "2026-01-01T00:00:00Z", ended: "2026-01-01T00:01:30Z", seconds: 90 } as Job;
  expect(plain(formatDuration(job, 0))).toBe("1 min 30 s");
  const running = { ...job, state: "running", ended: null, seconds: 4 } as Job;
  expect(plain(formatDuration(running, Date.parse("2026-01-01T00:00:12.9Z")))).toBe("12 s so far");
  expect(formatDuration({ ...running, started: null, seconds: null } as Job, 0)).toBe("");
});

test("a job that never ran waits until now, or waited until its end", () => {
  const created = "2026-01-01T00:00:00Z";
  const now = Date.parse("2026-01-01T00:00:30Z");
  expect(plain(formatWait({ created, ended: null }, now))).toBe("30 s waiting");
  expect(plain(formatWait({ created, ended: "2026-01-01T00:00:12Z" }, now))).toBe("waited 12 s");
});
