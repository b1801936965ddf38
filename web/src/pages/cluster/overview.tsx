/** One glance: what waits, what runs, who computes, what happened. */

import type { Signal } from "@preact/signals";
import type { Job, Queue } from "../../lib/api";
import { clock, integer, rate, seconds } from "../../lib/format";
import { known, type Fleet } from "../../lib/live";
import { oldestWait, whyNoSpeed, speedsOf, type LiveEvent } from "../../lib/fleet";
import { Progress } from "../../ui/progress";
import { State } from "../../ui/state";
import { Skeleton, Table, type Column } from "../../ui/table";
import { GpuStrip } from "./gpus";
import { counts, desiredText } from "./model/counts";
import { useDesired } from "./model/desired";
import { compose, fleet, go, happened, open, openWorkflow, state } from "./model/state";
import { WorkerStream } from "./stream";

const MOST_EVENTS = 12;

export function Overview() {
  if (!known.value) return <Skeleton rows={8} />;
  return (
    <div class="overview">
      <Figures fleet={fleet.value} />
      <section class="ages">
        <WorkerStream />
      </section>
      <div class="columns">
        <section aria-labelledby="now-title" class="ages">
          <h2 id="now-title">Jobs now</h2>
          <Now fleet={fleet.value} />
        </section>
        <section aria-labelledby="events-title">
          <h2 id="events-title">Last events</h2>
          <Events list={happened.value} />
        </section>
        <div class="stack apart">
          <section aria-labelledby="queues-title" class="ages">
            <h2 id="queues-title">Waiting, by queue</h2>
            <Queues queues={fleet.value.queues} />
          </section>
          <section aria-labelledby="gpus-title" class="ages">
            <h2 id="gpus-title">GPUs</h2>
            <GpuStrip gpus={fleet.value.gpus} />
          </section>
        </div>
      </div>
    </div>
  );
}

/** Shows the jobs of one state. */
function list(name: string): void {
  state.filter.value = `state:${name}`;
  go("jobs");
}

function Figures({ fleet: { status, workers, queues } }: { fleet: Fleet }) {
  const desired = desiredText(counts(workers, useDesired()));
  if (!status) return null;
  const live = workers.filter((worker) => worker.live);
  const lanes = live.reduce((sum, worker) => sum + worker.lanes, 0);
  const used = live.reduce((sum, worker) => sum + worker.busy_lanes, 0);
  const speeds = speedsOf(status, live.length);
  const counted = (name: "queued" | "running" | "failed") => (
    <button type="button" class="link" onClick={() => list(name)}>
      {integer(status.jobs[name] ?? 0)}
    </button>
  );
  return (
    <dl class="figures ages">
      <div>
        <dt>Workers</dt>
        <dd>
          {live.length}
          {status.cluster_size ? ` of ${status.cluster_size}` : ""}
        </dd>
      </div>
      {desired && (
        <div title="Workers that the work needs">
          <dt>Desired</dt>
          <dd>
            <button type="button" class="link" onClick={() => go("workers")}>
              {desired}
            </button>
          </dd>
        </div>
      )}
      <div>
        <dt>Busy lanes</dt>
        <dd>
          {used} of {lanes}
        </dd>
      </div>
      <div>
        <dt>Waiting</dt>
        <dd>{counted("queued")}</dd>
      </div>
      <div>
        <dt>Oldest wait</dt>
        <dd>{seconds(oldestWait(queues))}</dd>
      </div>
      <div>
        <dt>Running</dt>
        <dd>{counted("running")}</dd>
      </div>
      <div>
        <dt>Failed</dt>
        <dd class={status.jobs.failed ? "bad" : ""}>{counted("failed")}</dd>
      </div>
      {speeds.length === 0 && (
        <div>
          <dt>Speed</dt>
          <dd class="soft">{whyNoSpeed(status, live.length)}</dd>
        </div>
      )}
      {speeds.map(([kind, speed]) => (
        <div key={kind}>
          <dt>{kind}</dt>
          <dd>{rate(speed, "units").replace("units", "")}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Running jobs shown at most, the newest. */
const MOST_NOW = 6;

function NowRow({ job }: { job: Signal<Job> }) {
  const { job_id: id, type, waiting_because: why } = job.value;
  return (
    <li>
      <div class="row">
        <button type="button" class="link mono" onClick={() => open(id)}>
          {id}
        </button>
        <span class="soft">{type}</span>
      </div>
      <Progress job={job.value} />
      {why && <p class="small soft">{why}</p>}
    </li>
  );
}

/** Jobs that run or could; what they are is read without following each: its row does that. */
function Now({ fleet: { jobs, status } }: { fleet: Fleet }) {
  const states = ["running", "finishing", "cancelling", "paused"];
  const all = [...jobs.values()]
    .filter((job) => states.includes(job.peek().state))
    .sort((left, right) => (left.peek().created < right.peek().created ? 1 : -1));
  const rest = Math.max(all.length, status?.jobs.running ?? 0) - MOST_NOW;
  if (!all.length)
    return (
      <p class="soft">
        Nothing runs.{" "}
        <button type="button" class="link" onClick={() => compose()}>
          Submit a job
        </button>
      </p>
    );
  return (
    <>
      <ul class="now">
        {all.slice(0, MOST_NOW).map((job) => (
          <NowRow key={job.peek().job_id} job={job} />
        ))}
      </ul>
      {rest > 0 && <p class="soft small">and {integer(rest)} more</p>}
    </>
  );
}

const QUEUES: Column<Queue>[] = [
  { id: "queue", title: "queue", cell: (row) => row.queue },
  { id: "jobs", title: "jobs", end: true, cell: (row) => <span class="num">{integer(row.jobs)}</span> },
  {
    id: "wait",
    title: "oldest waits",
    end: true,
    cell: (row) => <span class="num">{row.jobs ? seconds(row.oldest_wait_seconds) : ""}</span>,
  },
];

function Queues({ queues }: { queues: readonly Queue[] }) {
  const waiting = queues.filter((row) => row.jobs > 0);
  if (!waiting.length) {
    return <p class="soft">Nothing waits.</p>;
  }
  return <Table label="Queues" columns={QUEUES} rows={waiting} name={(row) => row.queue} />;
}

/** An event in words, without its subject. */
export function said(event: LiveEvent): string {
  const itself = event.type === "worker" || event.type === "workflow";
  if (!event.job) return itself ? (event.state ?? "") : event.type;
  return `${event.type}${event.error ? `: ${event.error}` : ""}`;
}

function Events({ list: all }: { list: readonly LiveEvent[] }) {
  const newest = all.slice(-MOST_EVENTS).toReversed();
  if (!newest.length) return <p class="soft">Nothing has happened yet.</p>;
  return (
    <ol class="events">
      {newest.map((event) => (
        <li key={`${event.id} ${event.job ?? event.workflow ?? event.worker} ${event.type}`}>
          <time class="num soft">{clock(event.time)}</time>
          <span class="subject">
            {event.job ? (
              <button type="button" class="link mono" onClick={() => open(event.job ?? "")}>
                {event.job}
              </button>
            ) : event.workflow ? (
              <button type="button" class="link mono" onClick={() => openWorkflow(event.workflow ?? "")}>
                {event.workflow}
              </button>
            ) : (
              <span class="mono">{event.worker}</span>
            )}
            {event.kind && <span class="soft"> {event.kind}</span>}
          </span>
          <State of={event.state ?? ""} text={said(event)} />
        </li>
      ))}
    </ol>
  );
}
