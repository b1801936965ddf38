/** Overview of a job: the log of its first failed unit, failures, facts, attempts, related jobs and events. */

import { KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { lazy } from "../../ui/lazy";
import { Facts, JobEvents, JobWorkers, Relations } from "./details";

const Timeline = lazy(() => import("./timeline").then((part) => part.Timeline), 0);
const ResultSummary = lazy(() => import("./result").then((part) => part.ResultSummary), 3);
const FirstLog = lazy(() => import("./first-log").then((part) => part.FirstLog), 3);

export function Overview({ job }: { job: Job }) {
  return (
    <>
      {KINDS[job.type]?.hasPrograms ? <FirstLog job={job} /> : job.state === "done" && <ResultSummary job={job} />}
      <Timeline job={job} />
      <div class="columns">
        <div class="stack apart">
          <Facts job={job} />
          <JobWorkers job={job} />
        </div>
        <div class="stack apart">
          <JobEvents id={job.job_id} />
          <Relations job={job} />
        </div>
      </div>
    </>
  );
}
