/** Link to a job, followed by its short ID. */

import { jobAddress } from "../kinds";
import type { Job } from "../lib/api";
import { shortId, jobTitle } from "../lib/naming";

export function JobName({ job }: { job: Pick<Job, "job_id" | "type" | "title"> }) {
  const title = jobTitle(job);
  return (
    <span class="job-name">
      <a class="link" href={jobAddress(job.job_id)} title={title}>
        <bdi>{title}</bdi>
      </a>{" "}
      <span class="id" title={job.job_id}>
        {shortId(job.job_id)}
      </span>
    </span>
  );
}
