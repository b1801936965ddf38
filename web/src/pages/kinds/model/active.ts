/** How many jobs of a kind wait or run. Pure. */

import type { Job, Status } from "../../../lib/api";
import { integer } from "../../../lib/format";

const ACTIVE = ["queued", "running", "finishing"] as const;

/**
 * The number in words, of the jobs that the page knows. It knows the newest ones only: where the cluster counts more
 * than these in all, nobody here knows of which kinds the others are.
 */
export function activeText(type: string, known: readonly Pick<Job, "type" | "state">[], status?: Status): string {
  const active = known.filter((job) => ACTIVE.some((state) => state === job.state));
  const mine = active.filter((job) => job.type === type).length;
  const all = ACTIVE.reduce((sum, state) => sum + (status?.jobs[state] ?? 0), 0);
  if (active.length >= all) return integer(mine);
  return mine ? `at least ${integer(mine)}` : "not known";
}
