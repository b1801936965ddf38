/** The state of a job, for people. */

import type { Job } from "../../lib/api";
import { State } from "../../ui/state";
import { standsBy } from "./model/names";

/** One that went back into its queue waits its turn again. */
export function JobState({ job }: { job: Job }) {
  return standsBy(job) ? <State of="queued" text="waits its turn" /> : <State of={job.state} />;
}
