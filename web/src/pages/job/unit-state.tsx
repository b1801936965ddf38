/** Symbol of a unit's state, as in the grid. */

import type { UnitState } from "../../lib/api";
import { unitStateTitle } from "./model/units";

/** The symbol alone; place its text next to it. */
export function UnitStateIcon({ state: name }: { state: UnitState }) {
  return (
    <svg viewBox="0 0 12 12" aria-hidden="true" class={`unit-${name}`}>
      {name === "waiting" ? (
        <rect x="1" y="1" width="10" height="10" fill="none" stroke="currentColor" stroke-width="1.5" />
      ) : (
        <rect width="12" height="12" fill="currentColor" />
      )}
      {name === "running" && <rect x="1.5" y="1.5" width="9" height="4.5" fill="var(--bg)" />}
      {name === "retrying" && <rect x="1.5" y="4.5" width="9" height="3" fill="var(--bg)" />}
      {name === "dead" && <path d="M2 2l8 8M10 2l-8 8" stroke="var(--bg)" stroke-width="1.8" />}
    </svg>
  );
}

export function UnitStateLabel({ state: name }: { state: UnitState }) {
  return (
    <span class="state">
      <UnitStateIcon state={name} />
      <span>{unitStateTitle(name)}</span>
    </span>
  );
}
