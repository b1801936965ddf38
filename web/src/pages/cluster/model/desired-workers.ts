/** The number of workers that jobs need. It is polled, because no event reports it. */

import { get, type Status } from "../../../lib/api";
import type { DesiredWorkers } from "./counts";
import { usePolling } from "./polling";
import { fleet, isPaused } from "./state";

const REFRESH_SECONDS = 10;

/** Return the desired workers by device, refreshed while the component is shown; empty if unknown. */
export function useDesiredWorkers(): DesiredWorkers {
  const polled = usePolling("status", REFRESH_SECONDS, (control) => get<Status>("/api/status", {}, control));
  const status = (isPaused.value ? undefined : polled.value.value) ?? fleet.value.status;
  return status?.desired_workers ?? {};
}
