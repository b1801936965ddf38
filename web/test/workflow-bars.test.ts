import { expect, test } from "vitest";
import type { Action, Workflow } from "../src/lib/api";
import { placeBars } from "../src/pages/cluster/model/workflow-bars";

const at = (seconds: number) => new Date(Date.parse("2026-11-29T12:00:00Z") + 1000 * seconds).toISOString();
const action = (id: string, started: number | null, ended: number | null) =>
  ({
    action_id: id,
    started: started === null ? null : at(started),
    ended: ended === null ? null : at(ended),
  }) as Action;

test("bars start after the submission and grow while their action runs", () => {
  const actions = [action("late", 6, null), action("early", 1, 5), action("waiting", null, null)];
  const { bars, seconds } = placeBars({ created: at(0), ended: null, actions } as Workflow, Date.parse(at(10)));
  expect(bars.map((bar) => [bar.action.action_id, bar.begin, bar.seconds])).toEqual([
    ["early", 1, 4],
    ["late", 6, 4],
  ]);
  expect(seconds).toBe(10);
});

test("a clock that is set back gives no bar outside the timeline", () => {
  const { bars, seconds } = placeBars(
    { created: at(0), ended: at(2), actions: [action("a", -3, 4)] } as Workflow,
    Date.parse(at(1)),
  );
  expect(bars[0]).toMatchObject({ begin: 0, seconds: 7 });
  expect(seconds).toBe(7);
});
