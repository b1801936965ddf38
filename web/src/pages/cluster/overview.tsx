/** Overview: waiting and running jobs, workers, and recent events. */

import type { Signal } from "@preact/signals";
import type { Job, Queue } from "../../lib/api";
import { formatInteger, formatSeconds } from "../../lib/format";
import { clusterTime, hasSnapshot, knownUntil, type Fleet } from "../../lib/live";
import { runSeconds, queueWait } from "../../lib/fleet";
import { formatTimestamp } from "../../lib/naming";
import { explainWait } from "../../lib/summary";
import { TextButton } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { JobName } from "../../ui/job-name";
import { Progress } from "../../ui/progress";
import { LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { Events } from "./events";
import { GpuStrip } from "./gpu-strip";
import { Headlines } from "./headlines";
import { JobState } from "./job-state";
import { openForm, fleet, recentEvents, openJob } from "./model/state";
import { WorkerStream } from "./stream";
import { Swatch } from "./swatch";
import { Tiles } from "./tiles";

const Welcome = lazy(() => import("./welcome").then((part) => part.Welcome));

export function Overview() {
  if (!hasSnapshot.value) return <LoadingRows rows={8} />;
  const { status, jobs, queues, gpus } = fleet.value;
  const fresh = !jobs.size && status && !Object.values(status.jobs).some(Boolean);
  return (
    <div class="overview">
      {fresh && <Welcome />}
      <Headlines fleet={fleet.value} />
      {!fresh && (
        <section class="ages">
          <WorkerStream />
        </section>
      )}
      <section class="ages" aria-labelledby="workers-title">
        <h2 id="workers-title">Workers</h2>
        <Tiles />
      </section>
      <div class="columns">
        <section aria-labelledby="now-title" class="ages">
          <h2 id="now-title">Jobs now</h2>
          <ActiveJobs fleet={fleet.value} />
        </section>
        <section aria-labelledby="events-title">
          <h2 id="events-title">Last events</h2>
          <Events list={recentEvents.value} />
        </section>
        <div class="stack apart">
          <section aria-labelledby="queues-title" class="ages">
            <h2 id="queues-title">Waiting, by queue</h2>
            <Queues queues={queues} />
          </section>
          {gpus.length > 0 && (
            <section aria-labelledby="gpus-title" class="ages">
              <h2 id="gpus-title">GPUs</h2>
              <GpuStrip gpus={gpus} />
            </section>
          )}
        </div>
      </div>
    </div>
  );
}

/** Maximum number of displayed jobs. */
const MAX_JOBS = 6;

/** Displayed states: running jobs precede waiting jobs. */
const STATES = ["running", "finishing", "cancelling", "paused", "queued"];

function JobRow({ job: { value: job } }: { job: Signal<Job> }) {
  const { job_id: id, state, waiting_because: why } = job;
  const at = clusterTime(knownUntil.value);
  const run = runSeconds(job, at);
  const waited = Math.max(0, (at - Date.parse(job.created)) / 1000);
  return (
    <li>
      <div class="row">
        <Swatch job={id} />
        <span class="grow">
          <JobName job={job} onOpen={() => openJob(id)} />
        </span>
        <JobState job={job} />
      </div>
      {state !== "queued" && <Progress job={job} />}
      <p class="small soft">
        submitted <span class="num">{formatTimestamp(job.created)}</span>,{" "}
        {run === null ? "waiting for" : "running for"} <span class="num">{formatSeconds(run ?? waited)}</span>
        {why && `. ${explainWait(job)}`}
      </p>
    </li>
  );
}

/** Running and waiting jobs. The list does not subscribe to the jobs' signals; each row does. */
function ActiveJobs({ fleet: { jobs, status } }: { fleet: Fleet }) {
  const rank = (job: Signal<Job>) => STATES.indexOf(job.peek().state);
  const all = [...jobs.values()]
    .filter((job) => rank(job) >= 0)
    .sort((left, right) => rank(left) - rank(right) || (left.peek().created < right.peek().created ? 1 : -1));
  const counted = (status?.jobs.running ?? 0) + (status?.jobs.queued ?? 0);
  const rest = Math.max(all.length, counted) - Math.min(all.length, MAX_JOBS);
  if (!all.length)
    return (
      <p class="soft">
        No job is running. <TextButton onClick={() => openForm()}>Submit a job</TextButton>
      </p>
    );
  return (
    <>
      <ul class="now">
        {all.slice(0, MAX_JOBS).map((job) => (
          <JobRow key={job.peek().job_id} job={job} />
        ))}
      </ul>
      {rest > 0 && (
        <a class="small" href="#tab=jobs">
          and {formatInteger(rest)} more
        </a>
      )}
    </>
  );
}

const QUEUE_COLUMNS: Column<Queue>[] = [
  { id: "queue", title: "queue", cell: (row) => row.queue },
  numberColumn("jobs", "jobs", (row) => formatInteger(row.jobs)),
  numberColumn("wait", "oldest waits", (row) => formatSeconds(queueWait(row, knownUntil.value))),
];

function Queues({ queues }: { queues: readonly Queue[] }) {
  const waiting = queues.filter((row) => row.jobs > 0);
  if (!waiting.length) {
    return <p class="soft">No job is waiting.</p>;
  }
  return <Table label="Queues" columns={QUEUE_COLUMNS} rows={waiting} rowKey={(row) => row.queue} />;
}
