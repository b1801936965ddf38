/** Progress of a job: bar, share, speed and remaining time, with its actions. */

import type { Job } from "../lib/api";
import { formatCompact, formatInteger, formatPercent, formatRate, formatSeconds } from "../lib/format";
import { controlJob, allowedVerbs, type JobVerb } from "../lib/jobs";
import { isEnded } from "../lib/fleet";
import { Button } from "./button";
import { showError } from "./toast";

export function ProgressBar({ ratio, label }: { ratio: number; label: string }) {
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

const VERB_LABELS: Record<JobVerb, string> = { cancel: "Cancel", pause: "Pause", resume: "Resume", retry: "Retry" };

/** Perform an action on a job and report failures. */
export async function performVerb(id: string, verb: JobVerb): Promise<void> {
  try {
    await controlJob(id, verb);
  } catch (error) {
    showError(`${VERB_LABELS[verb]} ${id}`, error);
  }
}

interface ProgressProps {
  job: Job;
  /** True to show the buttons that the state allows. */
  hasButtons?: boolean;
  unit?: string;
}

export function Progress({ job, hasButtons = false, unit = "" }: ProgressProps) {
  return (
    <div class="progress wide">
      <ProgressBar ratio={job.progress} label={`job ${job.job_id}`} />
      <span class="num">{job.state === "done" ? `100\u202f%` : formatPercent(job.progress)}</span>
      {!isEnded(job) && job.rate ? <span class="num">{formatRate(job.rate, unit)}</span> : null}
      {!isEnded(job) && job.eta_seconds !== null ? (
        <span class="num">{formatSeconds(job.eta_seconds)} left</span>
      ) : null}
      <span class="num soft" title={`${formatInteger(job.done)} of ${formatInteger(job.total)}`}>
        {formatCompact(job.done)} of {formatCompact(job.total)}
      </span>
      {hasButtons &&
        allowedVerbs(job).map((verb) => (
          <Button key={verb} onClick={() => void performVerb(job.job_id, verb)}>
            {VERB_LABELS[verb]}
          </Button>
        ))}
    </div>
  );
}
