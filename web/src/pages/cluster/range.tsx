/** Time range of charts, stored in the URL. */

import { state } from "./model/state";
import { Button } from "../../ui/button";

/** Interval in seconds between requests for the history. */
export const REFRESH_SECONDS = 5;

const RANGES: [number, string][] = [
  [300, "5 min"],
  [600, "10 min"],
  [1800, "30 min"],
  [3600, "1 h"],
];

export function RangeField() {
  return (
    <div class="segments" role="group" aria-label="Time range">
      {RANGES.map(([seconds, text]) => (
        <Button
          key={seconds}
          aria-pressed={state.range.value === seconds}
          onClick={() => {
            state.range.value = seconds;
            state.commit();
          }}
        >
          {text}
        </Button>
      ))}
    </div>
  );
}
