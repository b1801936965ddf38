/** Positions of a workflow's actions on its timeline. */

import type { Action, Workflow } from "../../../lib/api";
import { actionSeconds } from "./workflows";

export interface Bar {
  action: Action;
  /** Seconds from the submission of the workflow to the start of the action. */
  begin: number;
  /** Duration in seconds, up to now if the action is running. */
  seconds: number;
}

/** Return the bars of all actions that started, in the order of their starts, and the length of the timeline. */
export function placeBars({ created, ended, actions }: Workflow, now: number): { bars: Bar[]; seconds: number } {
  const first = Date.parse(created);
  const end = ended ? Date.parse(ended) : now;
  const bars = actions
    .filter(({ started }) => started)
    .map((action) => ({
      action,
      begin: Math.max(0, (Date.parse(action.started ?? "") - first) / 1000),
      seconds: actionSeconds(action, now) ?? 0,
    }));
  const last = Math.max(...bars.map(({ begin, seconds }) => begin + seconds), (end - first) / 1000, 0.001);
  return { bars: bars.sort((left, right) => left.begin - right.begin), seconds: last };
}
