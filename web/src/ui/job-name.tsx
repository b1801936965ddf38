/** A job's name followed by its short ID. */

import type { Job } from "../lib/api";
import { shortId, jobTitle } from "../lib/naming";
import { TextButton } from "./button";

interface JobNameProps {
  job: Pick<Job, "job_id" | "type" | "title">;
  /** Opens the job; without it, the name is plain text. */
  onOpen?: () => void;
}

export function JobName({ job, onOpen }: JobNameProps) {
  const title = jobTitle(job);
  return (
    <span class="job-name">
      {onOpen ? (
        <TextButton onClick={onOpen} title={title}>
          <bdi>{title}</bdi>
        </TextButton>
      ) : (
        <bdi title={title}>{title}</bdi>
      )}{" "}
      <span class="id" title={job.job_id}>
        {shortId(job.job_id)}
      </span>
    </span>
  );
}
