/** How far back charts reach; kept in the address. */

import { state } from "./model/state";
import { Button } from "../../ui/button";

/** Histories are asked for again this often. */
export const REFRESH_SECONDS = 5;

const RANGES: [number, string][] = [
  [300, "5 min"],
  [600, "10 min"],
  [1800, "30 min"],
  [3600, "1 h"],
];

export function Range() {
  return (
    <div class="segments" role="group" aria-label="How far back">
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
