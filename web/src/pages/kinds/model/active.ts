/** Number of waiting and running jobs of a kind. Pure functions. */

import type { Job, Status } from "../../../lib/api";
import { formatInteger } from "../../../lib/format";

const ACTIVE_STATES = ["queued", "running", "finishing"] as const;

/**
 * Describe the number of active jobs. The page knows only the newest jobs; if the cluster has more active jobs, their
 * kinds are unknown.
 */
export function formatActive(type: string, known: readonly Pick<Job, "type" | "state">[], status?: Status): string {
  const active = known.filter((job) => ACTIVE_STATES.some((state) => state === job.state));
  const ofKind = active.filter((job) => job.type === type).length;
  const all = ACTIVE_STATES.reduce((sum, state) => sum + (status?.jobs[state] ?? 0), 0);
  if (active.length >= all) return formatInteger(ofKind);
  return ofKind ? `at least ${formatInteger(ofKind)}` : "not known";
}
