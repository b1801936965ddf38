import { expect, test } from "vitest";
import { decodeHash, encodeHash } from "../src/lib/hash";

const DEFAULTS = { v: 1, tab: "overview", filter: "", live: false, range: 600, kinds: [] as readonly string[] };

test.each([
  {},
  { tab: "jobs", filter: "state:running kind:a/b -x%&=#+,", live: true, range: 3600.5, kinds: ["a,b", "c d", "e+f"] },
  { filter: "käse 🧀\n", range: -1e21 },
  { kinds: ["1"] },
])("what is written is read again: %j", (given) => {
  const values = { ...DEFAULTS, ...given };
  expect(decodeHash(`#${encodeHash(values, DEFAULTS)}`, DEFAULTS)).toEqual(values);
});

test("the address is readable, and holds only what differs", () => {
  expect(encodeHash({ ...DEFAULTS, tab: "jobs", filter: "state:running kind:collatz", live: true }, DEFAULTS)).toBe(
    "tab=jobs&filter=state:running+kind:collatz&live=1",
  );
  expect(encodeHash(DEFAULTS, DEFAULTS)).toBe("");
});

test("what does not parse is the default, and unknown keys are left out", () => {
  expect(decodeHash("#range=abc&tab=%E0%A4%A&nope=1&live=0&=x&range", DEFAULTS)).toEqual(DEFAULTS);
});
