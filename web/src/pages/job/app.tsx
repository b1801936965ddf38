/** The page of one job. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { formAddress, jobListAddress, KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { copyText } from "../../lib/export";
import { isEnded } from "../../lib/fleet";
import { formatPercent, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { recheckJob } from "../../lib/live";
import { jobTitle } from "../../lib/naming";
import { explainWait, jobWorkflowAddress } from "../../lib/summary";
import { Button } from "../../ui/button";
import { ErrorMessage } from "../../ui/error-message";
import { ACTION_LABELS, allowedActions, performAction } from "../../ui/job-actions";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { LoadingRows } from "../../ui/table";
import { Panel, Tabs } from "../../ui/tabs";
import { showToast } from "../../ui/toast";
import { missingProblem, openJob, openTab, state, tab, TABS, tabs, type TabName } from "./model/state";
import { Overview } from "./overview";

const Units = lazy(() => import("./programs").then((part) => part.UnitsTab));
const Logs = lazy(() => import("./logs").then((part) => part.Logs));
const Result = lazy(() => import("./result").then((part) => part.ResultTab));
const Configuration = lazy(() => import("./configuration").then((part) => part.Configuration));

const PANELS: Record<TabName, (props: { job: Job }) => preact.JSX.Element> = {
  overview: (props) => <Overview {...props} />,
  units: (props) => <Units {...props} />,
  logs: (props) => <Logs {...props} />,
  result: (props) => <Result {...props} />,
  configuration: (props) => <Configuration {...props} />,
};
const TITLES: Record<TabName, string> = {
  overview: "Overview",
  units: "Units",
  logs: "Logs",
  result: "Result",
  configuration: "Configuration",
};

function setTitle(): void {
  const job = openJob.value;
  const active = job?.state === "running" || job?.state === "finishing";
  const progress = active ? `${formatPercent(job.progress)} - ` : "";
  document.title = `${progress}${job ? jobTitle(job) : "Job"} - Threads Cluster`;
}

function openNextTab(offset: number): void {
  const index = tabs.peek().indexOf(tab.peek()) + offset;
  const next = tabs.peek()[(index + tabs.peek().length) % tabs.peek().length];
  if (next) openTab(next);
}

export function JobPage() {
  useLayoutEffect(
    () =>
      bindShortcuts({
        ...Object.fromEntries(
          TABS.map((name, index) => [
            String(index + 1),
            { text: `tab ${TITLES[name]}`, run: () => tabs.peek().includes(name) && openTab(name) },
          ]),
        ),
        "[": { text: "previous tab", run: () => openNextTab(-1) },
        "]": { text: "next tab", run: () => openNextTab(1) },
        J: { text: "list of jobs", run: () => location.assign(jobListAddress("")) },
      }),
    [],
  );
  useEffect(() => effect(setTitle), []);
  return (
    <Page current="jobs">
      <JobView key={state.job.value} />
    </Page>
  );
}

function JobView() {
  const [id, job] = [state.job.value, openJob.value];
  useEffect(() => void (id && recheckJob(id)), [id]);
  if (job)
    return (
      <section class="job" aria-label={`Job ${id}`}>
        <JobBody job={job} />
      </section>
    );
  return <Missing id={id} />;
}

function Missing({ id }: { id: string }) {
  const problem = missingProblem.value;
  if (id && !problem) return <LoadingRows rows={8} />;
  if (problem && problem.status !== 404)
    return <ErrorMessage subject={`Job ${id}`} problem={problem} onRetry={() => location.reload()} />;
  const reason = problem?.title === "Deleted" ? "was deleted" : "does not exist, or it belongs to another tenant";
  return (
    <>
      <h1>Job</h1>
      <p class="trouble" role="alert">
        {id ? `Job ${id} ${reason}.` : "The URL of this page contains no job."}
      </p>
      <p>
        <a href={jobListAddress("")}>All jobs</a>
      </p>
    </>
  );
}

function JobBody({ job }: { job: Job }) {
  const CurrentPanel = PANELS[tab.value];
  return (
    <>
      <Heading job={job} />
      <div class="ages">
        <Progress job={job} unit="units" />
      </div>
      <Notes job={job} />
      <Tabs
        label="Parts of the job"
        current={tab.value}
        onChange={(name) => openTab(name as TabName)}
        tabs={tabs.value.map((name) => ({ id: name, title: TITLES[name] }))}
      />
      <Panel id={tab.value} class="stack apart">
        <CurrentPanel job={job} />
      </Panel>
    </>
  );
}

async function copyId(id: string): Promise<void> {
  showToast((await copyText(id)) ? "Copied the job ID" : "The browser does not allow this page to copy");
}

function Heading({ job }: { job: Job }) {
  const { job_id: id, type, tags = [], seconds } = job;
  const page = KINDS[type]?.page;
  const workflow = jobWorkflowAddress(id);
  return (
    <header class="stack">
      <div class="row">
        <h1 class="grow">{jobTitle(job)}</h1>
        {allowedActions(job).map((action) => (
          <Button
            key={action}
            class={action === "cancel" || action === "delete" ? "danger" : ""}
            onClick={() => void performAction(action, [id])}
          >
            {ACTION_LABELS[action]}
          </Button>
        ))}
        {!KINDS[type]?.isInternal && (
          <a class="button" href={formAddress(type, id)}>
            Edit and rerun
          </a>
        )}
        {page && (
          <a class="button" href={`${page.address}#job=${id}`}>
            Open in {page.title}
          </a>
        )}
      </div>
      <div class="row">
        <StateLabel state={job.state} />
        {isEnded(job) && seconds !== null && <span class="num">{formatSeconds(seconds)}</span>}
        <a href={jobListAddress(`kind:${type}`)}>{type}</a>
        <span class="mono soft">{id}</span>
        <Button class="plain" onClick={() => void copyId(id)}>
          Copy ID
        </Button>
        {workflow && <a href={workflow}>Workflow</a>}
        {tags.length > 0 && (
          <ul class="row tags" aria-label="Tags">
            {tags.map((tag) => (
              <li key={tag}>
                <a href={jobListAddress(`tag:${tag}`)}>{tag}</a>
              </li>
            ))}
          </ul>
        )}
      </div>
    </header>
  );
}

function Notes({ job }: { job: Job }) {
  const { error, notes, state: name, waiting_because: why } = job;
  return (
    <>
      {why && <p>{explainWait(job)}</p>}
      {name === "cancelling" && <p class="soft">The job is cancelled when its last lane has stopped.</p>}
      {error && (
        <p class="trouble" role="alert">
          {error}
        </p>
      )}
      {notes.map((note) => (
        <p class="soft" key={note}>
          {note}
        </p>
      ))}
    </>
  );
}
