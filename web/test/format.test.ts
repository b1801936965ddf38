import { expect, test } from "vitest";
import {
  formatAge,
  formatBytes,
  formatCompact,
  formatCount,
  formatInteger,
  formatElapsed,
  formatPercent,
  formatRate,
  formatSeconds,
} from "../src/lib/format";

const plain = (text: string) => text.replaceAll("\u202f", " ");

test.each([
  [0, "0"],
  [999, "999"],
  [1000, "1 000"],
  [-1234567, "-1 234 567"],
  [1e21, "1 000 000 000 000 000 000 000"],
  ["9007199254740993", "9 007 199 254 740 993"],
  [2n ** 64n, "18 446 744 073 709 551 616"],
  [null, ""],
  [undefined, ""],
])("integer %s", (value, expected) => expect(plain(formatInteger(value))).toBe(expected));

test.each([
  [0, "0"],
  [12.345, "12.3"],
  [999, "999"],
  [999.9, "1000"],
  [1000, "1 k"],
  [999_499, "999 k"],
  [999_500, "1 M"],
  [1.23e10, "12.3 G"],
  ["1414236446719942480", "1.41 E"],
  [-2500, "-2.5 k"],
  [1e21, "1.00e21"],
  [`1${"0".repeat(400)}`, "1.00e400"],
  [NaN, "NaN"],
  [null, ""],
])("compact %s", (value, expected) => expect(plain(formatCompact(value))).toBe(expected));

test.each([
  [0, "0 %"],
  [0.001, "<1 %"],
  [0.0149, "1 %"],
  [0.5, "50 %"],
  [0.999, "99 %"],
  [1, "100 %"],
  [1.5, "150 %"],
  [null, ""],
])("percent %s never says all or nothing too early", (value, expected) =>
  expect(plain(formatPercent(value))).toBe(expected),
);

test.each([
  [0, "0 s"],
  [0.0000005, "0.5 µs"],
  [0.000999, "999 µs"],
  [0.0412, "41.2 ms"],
  [0.9994, "999 ms"],
  [0.9996, "1.0 s"],
  [1.44, "1.4 s"],
  [9.96, "10 s"],
  [59.4, "59 s"],
  [59.6, "1 min"],
  [200, "3 min 20 s"],
  [7500, "2 h 5 min"],
  [3600, "1 h"],
  [273_600, "3 d 4 h"],
  [Infinity, "never"],
  [NaN, ""],
])("seconds %s", (value, expected) => expect(plain(formatSeconds(value))).toBe(expected));

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [1.5 * 2 ** 30, "1.5 GiB"],
  [1023.9 * 1024, "1 MiB"],
  [null, ""],
])("bytes %s", (value, expected) => expect(plain(formatBytes(value))).toBe(expected));

test("rates and ages", () => {
  expect(plain(formatRate(12_345_678))).toBe("12.3 M/s");
  expect(plain(formatRate(12, "jobs"))).toBe("12 jobs/s");
  expect(plain(formatRate(29_850, "requests"))).toBe("29.9 k requests/s");
  expect(plain(formatAge("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:20Z")))).toBe("3 min 20 s ago");
  expect(formatAge(null)).toBe("");
});

test.each([
  [0.4, "0 s"],
  [5, "5 s"],
  [59.4, "59 s"],
  [200, "3 min 20 s"],
])("passed %s is in whole seconds", (value, expected) => expect(plain(formatElapsed(value))).toBe(expected));

test.each([
  [0, "0 steps"],
  [1, "1 step"],
  [1n, "1 step"],
  ["1", "1 step"],
  [1234, "1 234 steps"],
])("counted %s", (count, expected) => expect(plain(formatCount(count, "step"))).toBe(expected));

test("the plural of a word that takes no s", () =>
  expect([1, 2].map((count) => formatCount(count, "dependency", "dependencies"))).toEqual([
    "1 dependency",
    "2 dependencies",
  ]));
