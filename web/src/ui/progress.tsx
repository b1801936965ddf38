/** Progress of a job: bar, share, speed and remaining time, with its actions. */

import type { Job } from "../lib/api";
import { compact, integer, percent, rate, seconds } from "../lib/format";
import { steer, verbs, type Verb } from "../lib/jobs";
import { ended } from "../lib/fleet";
import { Button } from "./button";
import { failed } from "./toast";

export function Bar({ ratio, label }: { ratio: number; label: string }) {
  return (
    <span
      class="bar"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(ratio * 100)}
    >
      <i style={{ width: `${Math.min(100, ratio * 100)}%` }} />
    </span>
  );
}

const WORDS: Record<Verb, string> = { cancel: "Cancel", pause: "Pause", resume: "Resume", retry: "Retry" };

/** Perform an action on a job and report failures. */
export async function act(id: string, verb: Verb): Promise<void> {
  try {
    await steer(id, verb);
  } catch (error) {
    failed(`${WORDS[verb]} ${id}`, error);
  }
}

interface ProgressProps {
  job: Job;
  /** True to show the buttons that the state allows. */
  steering?: boolean;
  unit?: string;
}

export function Progress({ job, steering = false, unit = "" }: ProgressProps) {
  return (
    <div class="progress wide">
      <Bar ratio={job.progress} label={`job ${job.job_id}`} />
      <span class="num">{job.state === "done" ? `100\u202f%` : percent(job.progress)}</span>
      {!ended(job) && job.rate ? <span class="num">{rate(job.rate, unit)}</span> : null}
      {!ended(job) && job.eta_seconds !== null ? <span class="num">{seconds(job.eta_seconds)} left</span> : null}
      <span class="num soft" title={`${integer(job.done)} of ${integer(job.total)}`}>
        {compact(job.done)} of {compact(job.total)}
      </span>
      {steering &&
        verbs(job).map((verb) => (
          <Button key={verb} onClick={() => void act(job.job_id, verb)}>
            {WORDS[verb]}
          </Button>
        ))}
    </div>
  );
}
