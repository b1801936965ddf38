import { expect, test } from "vitest";
import { isListed, KINDS, canSubmit } from "../src/kinds";

test("who may submit what: programs take a scope of their own", () => {
  const kinds = Object.keys(KINDS);
  const may = (...scopes: string[]) => kinds.filter((kind) => canSubmit(kind, scopes));
  expect(may("read")).toEqual([]);
  expect(may("submit")).toEqual(kinds.filter((kind) => !KINDS[kind]?.hasPrograms));
  expect(may("submit", "run")).toEqual(kinds);
  expect(may("admin")).toEqual(may("submit", "run"));
  expect(may("run")).toEqual([]);
});

test("jobs that belong to something else are not listed beside others, and those of an unknown kind are", () => {
  const apart = Object.keys(KINDS).filter((kind) => !isListed(kind));
  expect(apart).toHaveLength(1);
  expect(KINDS[apart[0] as string]?.exampleCommand).toContain("cluster serve");
  expect(isListed("nosuch")).toBe(true);
});
