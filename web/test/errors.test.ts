import { expect, test } from "vitest";
import { asProblem, Problem } from "../src/lib/api";
import { messageOf } from "../src/lib/errors";

test("the class of an unexpected error is named, and not that of our own", () => {
  expect(messageOf(new TypeError("x is undefined"))).toBe("TypeError: x is undefined");
  expect(messageOf(new RangeError())).toBe("RangeError");
  expect(messageOf(new Error("The file is empty."))).toBe("The file is empty.");
  expect(messageOf(new Problem(404, "Not found", "job x: does not exist"))).toBe("job x: does not exist");
  expect(messageOf("text")).toBe("text");
});

test("an unexpected error is a problem with its class", () => {
  expect(asProblem(new TypeError("x is undefined")).detail).toBe("TypeError: x is undefined");
});
