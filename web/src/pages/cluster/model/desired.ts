/** The workers that the work needs. No event says them: the number falls long after the last job. */

import { get, type Status } from "../../../lib/api";
import type { Desired } from "./counts";
import { usePolled } from "./polled";
import { fleet, paused } from "./state";

const REFRESH_SECONDS = 10;

/** Desired workers by device, up to date while the component is shown; empty while the cluster counts none. */
export function useDesired(): Desired {
  const polled = usePolled("status", REFRESH_SECONDS, (control) => get<Status>("/api/status", {}, control));
  const status = (paused.value ? undefined : polled.value.value) ?? fleet.value.status;
  return status?.desired_workers ?? {};
}
