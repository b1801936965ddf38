/** Displays the state of a job. */

import type { Job } from "../../lib/api";
import { StateLabel } from "../../ui/state";
import { isWaitingAgain } from "./model/names";

/** A job that returned to its queue is displayed as waiting. */
export function JobState({ job }: { job: Job }) {
  return isWaitingAgain(job) ? (
    <StateLabel state="queued" text="waits for its turn" />
  ) : (
    <StateLabel state={job.state} />
  );
}
