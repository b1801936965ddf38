import { expect, test } from "vitest";
import { createSparkline } from "../src/ui/sparkline";

test("a line from zero to the greatest value, with a dot at its end", () => {
  const { line, area, end } = createSparkline([0, 5, 10], 104, 24);
  expect(line).toBe("M2 22L52 12L102 2");
  expect(area).toBe("M2 22L2 22L52 12L102 2L102 22Z");
  expect(end).toEqual({ x: 102, y: 2 });
});

test("what is not known is a hole, and a value alone is a dash", () => {
  const { line, end } = createSparkline([1, null, 1, 1, null], 104, 24);
  expect(line).toBe("M2 2h1M52 2L77 2");
  expect(end).toBeUndefined();
});

test("nothing known draws nothing; zeros lie on the ground", () => {
  expect(createSparkline([null, Number.NaN], 104, 24)).toEqual({ line: "", area: "", end: undefined });
  expect(createSparkline([0, 0], 104, 24).line).toBe("M2 22L102 22");
});
