/** Displays the state of a job. */

import type { Job } from "../../lib/api";
import { StateLabel } from "../../ui/state";
import { standsBy } from "./model/names";

/** A job that returned to its queue is displayed as waiting. */
export function JobState({ job }: { job: Job }) {
  return standsBy(job) ? <StateLabel state="queued" text="waits for its turn" /> : <StateLabel state={job.state} />;
}
