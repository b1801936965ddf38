import { expect, test } from "vitest";
import { KINDS, submits } from "../src/kinds";

test("who may submit what: programs take a scope of their own, and what the cluster keeps takes none", () => {
  const kinds = Object.keys(KINDS);
  const may = (...scopes: string[]) => kinds.filter((kind) => submits(kind, scopes));
  expect(may("read")).toEqual([]);
  expect(may("submit")).toEqual(kinds.filter((kind) => !KINDS[kind]?.programs));
  expect(may("submit", "run")).toEqual(kinds.filter((kind) => !KINDS[kind]?.kept));
  expect(may("admin")).toEqual(may("submit", "run"));
  expect(may("run")).toEqual([]);
});
