import { describe, expect, it } from "vitest";
import * as frontier from "../../src/pages/collatz/model/frontier";

describe("frontier", () => {
  it("knows the classes that no rule drops", () => {
    // numbers of jobs/kinds/collatz/frontier_plan.py
    expect([10, 13, 16, 22].map((depth) => frontier.listClasses(depth).length)).toEqual([46, 249, 1433, 56_161]);
    const numbers = frontier.listClasses(10);
    expect(numbers).toContain(27);
    expect(numbers.some((number) => number % 2 === 0 || number % 4 === 1)).toBe(false);
  });

  it("divides classes among blocks", () => {
    const rows = Array.from({ length: 4096 }, (_, block): frontier.Row => [block, 1, 1, "1"]);
    const all = frontier.readClasses(60, 56_161 * 2 ** 12, rows);
    expect(all.shares.every((share) => Math.abs(share - 1) < 1e-3)).toBe(true);
    const half = frontier.readClasses(60, 56_161 * 2 ** 12, rows.slice(0, 2048));
    const groups = frontier.groupClasses(half, 8);
    const done = groups.reduce((sum, group) => sum + group.done, 0);
    expect(done / half.numbers.length).toBeCloseTo(0.5, 2);
    expect(groups.reduce((sum, group) => sum + group.count, 0)).toBe(56_161);
    expect(groups.every(({ residue, first }) => (half.numbers[first] as number) % 256 === residue)).toBe(true);
    expect(frontier.groupClasses(half, 22, 100).length).toBeLessThanOrEqual(100);
  });

  it("derives expected times from the longest search", () => {
    const job = (id: string, bits: number, done: number, seconds: number) => ({
      job_id: id,
      type: "collatz",
      parameters: { mode: "frontier", bits },
      done,
      total: 100,
      seconds,
    });
    const counted = { ...job("c", 0, 50, 99), parameters: { mode: "verify" } };
    expect(frontier.frontierPace([counted, job("d", 30, 0, 50)])).toBeUndefined();
    const pace = frontier.frontierPace([counted, job("a", 40, 50, 10), job("b", 30, 100, 1)]);
    expect(pace).toEqual({ job: "a", bits: 40, seconds: 20 });
    expect(frontier.secondsTo(41, pace as frontier.FrontierPace)).toBeCloseTo(38);
  });
});
