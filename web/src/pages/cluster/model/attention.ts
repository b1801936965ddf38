/** Jobs, workflows and services that a person has to look at, with one action each. Pure functions. */

import { jobAddress, KINDS, workflowAddress } from "../../../kinds";
import type { Job, Service, WorkflowSummary } from "../../../lib/api";
import { jobTitle } from "../../../lib/naming";

export interface AttentionItem {
  id: string;
  state: string;
  title: string;
  reason: string;
  /** Label and URL of the next step. */
  action: string;
  address: string;
}

/** Age in milliseconds up to which a failed job needs attention. */
const MAX_AGE_MS = 24 * 3600 * 1000;

function describeFailedJob(job: Job): AttentionItem {
  return {
    id: job.job_id,
    state: "failed",
    title: jobTitle(job),
    reason: job.error ?? "",
    action: KINDS[job.type]?.hasPrograms ? "Open log" : "Open job",
    address: jobAddress(job.job_id),
  };
}

function describeStuckJob(job: Job, machines: string): AttentionItem {
  return {
    id: job.job_id,
    state: "queued",
    title: jobTitle(job),
    reason: job.waiting_because ?? "",
    action: "Add a machine",
    address: machines,
  };
}

/** Return True if a job waits for a worker that the cluster does not have. */
function isStuck({ state, waiting_because: reason }: Job): boolean {
  return state === "queued" && /^no (live worker|runner) /.test(reason ?? "");
}

/**
 * Return workflows that wait for an approval, broken services, recently failed jobs and jobs that no worker can run.
 * `now` is cluster time in ms, and `machines` is the URL of the list of machines.
 */
export function listAttention(
  jobs: readonly Job[],
  workflows: readonly WorkflowSummary[],
  services: readonly Service[],
  now: number,
  machines: string,
): AttentionItem[] {
  const isRecent = ({ ended }: Job) => ended !== null && now - Date.parse(ended) < MAX_AGE_MS;
  const failed = jobs.filter((job) => job.state === "failed" && isRecent(job));
  failed.sort((left, right) => ((left.ended ?? "") < (right.ended ?? "") ? 1 : -1));
  return [
    ...workflows
      .filter(({ counts }) => counts.approval)
      .map(({ workflow_id: id, name, counts }) => ({
        id,
        state: "approval",
        title: name,
        reason: `waits for ${counts.approval === 1 ? "an approval" : `${counts.approval} approvals`}`,
        action: "Review",
        address: workflowAddress(id),
      })),
    ...services
      .filter(({ failures, state }) => failures > 0 && state !== "stopped")
      .map(({ name, last_failure: reason }) => ({
        id: name,
        state: "unhealthy",
        title: name,
        reason: `the last replica died: ${reason ?? "unknown reason"}`,
        action: "Open service",
        address: `#tab=services&service=${encodeURIComponent(name)}`,
      })),
    ...failed.map(describeFailedJob),
    ...jobs.filter(isStuck).map((job) => describeStuckJob(job, machines)),
  ];
}
