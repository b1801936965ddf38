import { expect, test } from "vitest";
import { Ring } from "../src/lib/ring";

test("a ring keeps the newest, in order", () => {
  const ring = new Ring<number>(3);
  for (const each of [1, 2, 3, 4, 5]) ring.push(each);
  expect([ring.length, ring.toArray(), ring.at(0), ring.at(-1), ring.at(3)]).toEqual([3, [3, 4, 5], 3, 5, undefined]);
  ring.clear();
  ring.push(9);
  expect(ring.toArray()).toEqual([9]);
});

test("a ring that holds nothing is refused", () => {
  expect(() => new Ring(0)).toThrow(RangeError);
});
