/** Home: what to start, what needs attention, what is running, endpoints and capacity. */

import type { Signal } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { formAddress, isListed, PAGES } from "../../kinds";
import { get, maySubmit, session, type Job, type Jobs, type Service, type WorkflowList } from "../../lib/api";
import { formatInteger, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { clusterTime, hasSnapshot, knownUntil, storeJob, type Fleet } from "../../lib/live";
import { runSeconds } from "../../lib/fleet";
import { formatTimestamp, shortId } from "../../lib/naming";
import { explainWait } from "../../lib/summary";
import { Button, TextButton } from "../../ui/button";
import { CopyLine } from "../../ui/copy-button";
import { JobName } from "../../ui/job-name";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { LoadingRows } from "../../ui/table";
import { Events } from "./events";
import { GpuStrip } from "./gpu-strip";
import { Headlines } from "./headlines";
import { JobState } from "./job-state";
import { listAttention, type AttentionItem } from "./model/attention";
import { usePolling } from "./model/polling";
import { formatModel, formatReadiness, loadServices } from "./model/services";
import { fleet, isWritingWorkflow, openForm, openService, openTab, recentEvents, state } from "./model/state";
import { WorkerStream } from "./stream";
import { Swatch } from "./swatch";
import { Tiles } from "./tiles";

const REFRESH_SECONDS = 5;
/** Number of requested workflows and failed jobs. */
const RECENT_WORKFLOWS = 20;
const RECENT_FAILURES = 10;

function openFirstItem(): void {
  document.querySelector<HTMLElement>(".attention .items a.button")?.click();
}

export function Home() {
  useLayoutEffect(
    () => bindShortcuts({ a: { text: "open the first item that needs attention", run: openFirstItem } }),
    [],
  );
  if (!hasSnapshot.value) return <LoadingRows rows={8} />;
  const { status, jobs, gpus } = fleet.value;
  const isEmpty = !jobs.size && status && !Object.values(status.jobs).some(Boolean);
  return (
    <div class="overview">
      <Actions />
      {isEmpty ? <FirstSteps /> : <Activity />}
      <section class="stack apart" aria-labelledby="capacity-title">
        <h2 id="capacity-title">Capacity</h2>
        <Headlines fleet={fleet.value} />
        {!isEmpty && (
          <div class="ages">
            <WorkerStream />
          </div>
        )}
        <div class="ages">
          <Tiles />
        </div>
        {gpus.length > 0 && (
          <div class="ages">
            <GpuStrip gpus={gpus} />
          </div>
        )}
      </section>
    </div>
  );
}

function Actions() {
  const allowed = maySubmit("command");
  const writeWorkflow = () => {
    isWritingWorkflow.value = true;
    openTab("workflows");
  };
  return (
    <div class="row starts">
      {allowed ? (
        <a class="button primary" href={formAddress("command")}>
          Run a program
        </a>
      ) : (
        <a class="button" href={PAGES.find(({ name }) => name === "run")?.address}>
          Run a job
        </a>
      )}
      <Button onClick={() => openTab("services")}>Serve a model</Button>
      <Button onClick={writeWorkflow}>Submit a workflow</Button>
      {session.value && !allowed && (
        <span class="small soft">To run programs, log in with a token that has the scope run.</span>
      )}
    </div>
  );
}

function FirstSteps() {
  return (
    <section class="welcome stack" aria-labelledby="welcome-title">
      <h2 id="welcome-title">Run your first job</h2>
      <CopyLine text="cluster run --no-files -- echo hello" name="the command" />
      <p class="soft">
        Run this command in a shell on this machine. To use other machines too,{" "}
        <TextButton onClick={() => openTab("hosts")}>add a machine</TextButton>.
      </p>
    </section>
  );
}

function Activity() {
  const services = usePolling("services", REFRESH_SECONDS, loadServices).value.value ?? [];
  return (
    <>
      <Attention services={services} />
      <div class="columns">
        <section aria-labelledby="now-title" class="ages">
          <h2 id="now-title">Running and waiting</h2>
          <ActiveJobs fleet={fleet.value} />
        </section>
        <div class="stack apart">
          {services.length > 0 && (
            <section aria-labelledby="endpoints-title" class="ages">
              <h2 id="endpoints-title">Endpoints</h2>
              <Endpoints services={services} />
            </section>
          )}
          <section aria-labelledby="events-title">
            <h2 id="events-title">Last events</h2>
            <Events list={recentEvents.value} />
          </section>
        </div>
      </div>
    </>
  );
}

// -- needs attention ------------------------------------------------------------------------------------------------

/** Maximum number of displayed items. */
const MAX_ITEMS = 5;

function Attention({ services }: { services: readonly Service[] }) {
  useEffect(() => {
    get<Jobs>("/api/jobs", { state: "failed", limit: RECENT_FAILURES }).then(
      ({ jobs }) => jobs.forEach(storeJob),
      () => undefined, // the banner explains why the cluster does not answer
    );
  }, []);
  const workflows = usePolling("attention", REFRESH_SECONDS, (signal) =>
    get<WorkflowList>("/api/workflows", { limit: RECENT_WORKFLOWS }, signal),
  );
  const jobs = [...fleet.value.jobs.values()].map((job) => job.value);
  const machines = "#tab=hosts";
  const now = clusterTime(knownUntil.value);
  const items = listAttention(jobs, workflows.value.value?.workflows ?? [], services, now, machines);
  const showFailed = () => {
    state.filter.value = "state:failed";
    openTab("jobs");
  };
  return (
    <section aria-labelledby="attention-title" class="ages attention">
      <h2 id="attention-title">
        Needs attention {items.length > 0 && <span class="num soft">{formatInteger(items.length)}</span>}
      </h2>
      {!items.length && <p class="soft">Nothing needs attention.</p>}
      <ul class="now items">
        {items.slice(0, MAX_ITEMS).map((item) => (
          <AttentionRow item={item} key={`${item.state} ${item.id}`} />
        ))}
      </ul>
      {items.length > MAX_ITEMS && (
        <TextButton onClick={showFailed}>All {formatInteger(items.length)}: list of failed jobs</TextButton>
      )}
    </section>
  );
}

function AttentionRow({ item: { id, state: at, title, reason, action, address } }: { item: AttentionItem }) {
  return (
    <li class="row">
      <StateLabel state={at} text={at === "queued" ? "blocked" : at} />
      <span class="grow clip" title={`${title}: ${reason}`}>
        <bdi>{title}</bdi> <span class="mono soft small">{shortId(id)}</span> <span class="soft">{reason}</span>
      </span>
      <a class="button" href={address} aria-label={`${action}: ${title}, ${shortId(id)}`}>
        {action}
      </a>
    </li>
  );
}

// -- endpoints ------------------------------------------------------------------------------------------------------

function Endpoints({ services }: { services: readonly Service[] }) {
  return (
    <>
      <CopyLine text={`${location.origin}/v1`} name="the base URL" />
      <ul class="now">
        {services.map((service) => (
          <li class="row" key={service.name}>
            <span class="grow">
              <TextButton onClick={() => openService(service.name)}>{service.name}</TextButton>{" "}
              <span class="small soft">
                {service.engine} {formatModel(service.model)}
              </span>
            </span>
            <span class="small num soft">{formatReadiness(service)}</span>
            <StateLabel state={service.state} />
          </li>
        ))}
      </ul>
    </>
  );
}

// -- running and waiting --------------------------------------------------------------------------------------------

/** Maximum number of displayed jobs. */
const MAX_JOBS = 6;

/** Displayed states: running jobs precede waiting jobs. */
const STATES = ["running", "finishing", "cancelling", "paused", "queued"];

function JobRow({ job: { value: job } }: { job: Signal<Job> }) {
  const { job_id: id, state: at, waiting_because: why } = job;
  const time = clusterTime(knownUntil.value);
  const run = runSeconds(job, time);
  const waited = Math.max(0, (time - Date.parse(job.created)) / 1000);
  return (
    <li>
      <div class="row">
        <Swatch job={id} />
        <span class="grow">
          <JobName job={job} />
        </span>
        <JobState job={job} />
      </div>
      {at !== "queued" && <Progress job={job} />}
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
    .filter((job) => rank(job) >= 0 && isListed(job.peek().type))
    .sort((left, right) => rank(left) - rank(right) || (left.peek().created < right.peek().created ? 1 : -1));
  const counted = (status?.jobs.running ?? 0) + (status?.jobs.queued ?? 0);
  const rest = Math.max(all.length, counted) - Math.min(all.length, MAX_JOBS);
  if (!all.length)
    return (
      <p class="soft">
        No jobs are running. <TextButton onClick={() => openForm()}>Submit a job</TextButton>
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
