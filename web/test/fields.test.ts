import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  validateField,
  toJsonNumber,
  createFields,
  formatLabel,
  describeBounds,
  parseField,
  parseInteger,
  formatField,
  type Field,
  type Schema,
} from "../src/ui/fields";

const SCHEMA: Schema = JSON.parse(readFileSync(new URL("kind.json", import.meta.url), "utf8"));
const byName = new Map(createFields(SCHEMA).map((field) => [field.name, field]));
const field = (name: string) => byName.get(name) as Field;

test("each shape of a kind's schema has a field", () => {
  expect([...byName.values()].map(({ name, kind }) => [name, kind])).toEqual([
    ["mode", "choice"],
    ["count", "integer"],
    ["share", "number"],
    ["dense", "boolean"],
    ["cores", "list"],
    ["policy", "list"],
    ["spawn", "union"],
    ["known", "object"],
    ["law", "list"],
    ["anything", "json"],
  ]);
});

test("bounds come through null, alternatives and those beyond 2^53", () => {
  expect(describeBounds(field("count")).replaceAll("\u202f", " ")).toBe("1 to 79 228 162 514 264 337 593 543 950 335");
  expect(describeBounds(field("cores"))).toBe("1 to 64");
  expect(validateField(field("count"), "79228162514264337593543950335")).toBeUndefined();
  expect(validateField(field("count"), "79228162514264337593543950336")).toMatch(/^must be 1 to 79/);
  expect(validateField(field("count"), "many")).toContain("whole number");
  expect(validateField(field("cores"), [1, 99])).toBe("must be 1 to 64");
  expect(validateField(field("share"), 1.5)).toBe("must be 0 to 1");
});

test("a bound may itself be outside", () => {
  const properties = {
    share: { type: "number", exclusiveMinimum: 0, maximum: 10 },
    less: { type: "number", exclusiveMaximum: 1 },
  };
  const [share, less] = createFields({ properties });
  expect([describeBounds(share as Field), describeBounds(less as Field)]).toEqual([
    "more than 0, at most 10",
    "less than 1",
  ]);
  expect(validateField(share as Field, 0)).toBe("must be more than 0, at most 10");
  expect(validateField(share as Field, 10)).toBeUndefined();
});

test("variants keep their fields without the one that tells them apart", () => {
  expect(field("spawn").variants?.map((each) => [each.name, each.fields.map((inner) => inner.name)])).toEqual([
    ["fixed", ["children"]],
    ["poisson", ["mean"]],
  ]);
  expect(field("known").fields?.map((inner) => [inner.name, inner.optional])).toEqual([["delay", false]]);
});

test.each([
  ["1000000", 1000000n],
  ["1 000 000", 1000000n],
  ["1_000", 1000n],
  ["1e6", 1000000n],
  ["1.5e3", 1500n],
  ["2^40", 2n ** 40n],
  ["10^9+7", 1000000007n],
  ["2^61-1", 2n ** 61n - 1n],
  ["-5", -5n],
  ["1.5", undefined],
  ["1.55e1", undefined],
  ["x", undefined],
  ["", undefined],
  ["1e", undefined],
])("whole number %s", (text, expected) => expect(parseInteger(text)).toBe(expected));

test("integers stay exact in JSON", () => {
  expect([toJsonNumber(2n ** 53n - 1n), toJsonNumber(2n ** 53n + 1n), toJsonNumber(-(2n ** 60n))]).toEqual([
    9007199254740991,
    "9007199254740993",
    "-1152921504606846976",
  ]);
});

test("what is typed becomes what the API takes", () => {
  expect([
    parseField(field("count"), "2^70"),
    parseField(field("count"), ""),
    parseField(field("count"), "zzz"),
  ]).toEqual(["1180591620717411303424", undefined, "zzz"]);
  expect([parseField(field("cores"), "4"), parseField(field("cores"), "1, 2,8")]).toEqual([4, [1, 2, 8]]);
  expect([
    parseField(field("law"), "0.5"),
    parseField(field("anything"), '{"a":1}'),
    parseField(field("share"), "0.25"),
  ]).toEqual([[0.5], { a: 1 }, 0.25]);
  expect([
    formatField(field("cores"), [1, 2]),
    formatField(field("count"), null),
    formatField(field("anything"), { a: 1 }),
  ]).toEqual(["1, 2", "", '{"a":1}']);
});

test("labels say units", () =>
  expect([formatLabel("start_number"), formatLabel("stack_kib"), formatLabel("mean_us")]).toEqual([
    "start number",
    "stack, KiB",
    "mean, µs",
  ]));
