/** Displays the state of a job. */

import type { Job } from "../../lib/api";
import { State } from "../../ui/state";
import { standsBy } from "./model/names";

/** A job that returned to its queue is displayed as waiting. */
export function JobState({ job }: { job: Job }) {
  return standsBy(job) ? <State of="queued" text="waits for its turn" /> : <State of={job.state} />;
}
