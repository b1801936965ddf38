/** One kind: its form and its jobs. */

import { useLayoutEffect } from "preact/hooks";
import { jobAddress, jobListAddress, KINDS } from "../../kinds";
import { maySubmit, session, type Job, type Kind } from "../../lib/api";
import { formatCompact, formatPercent } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { snapshot } from "../../lib/live";
import { summarizeJob } from "../../lib/summary";
import { Button } from "../../ui/button";
import { JobName } from "../../ui/job-name";
import { StateLabel } from "../../ui/state";
import { KindForm } from "../../ui/submission";
import { EmptyMessage, Table, type Column, numberColumn } from "../../ui/table";
import { draft, storeDraft, showKind } from "./model/state";

function focusForm(): void {
  document.querySelector<HTMLElement>(".kind-form .stack .fields :is(input, select)")?.focus();
}

export function KindView({ kind }: { kind: Kind }) {
  useLayoutEffect(() => bindShortcuts({ N: { text: "first field of the form", run: focusForm } }), []);
  return (
    <div class="kind">
      <section class="kind-form" aria-label="New job">
        <Heading kind={kind} />
        <Refusal kind={kind} />
        <KindForm
          kind={kind}
          draft={draft.value}
          onChange={storeDraft}
          onSubmitted={(job) => location.assign(jobAddress(job))}
        />
      </section>
      <div class="kind-job">
        <RecentJobs kind={kind} />
      </div>
    </div>
  );
}

/** Note for users who may not submit jobs of the kind; the form still shows its parameters. */
function Refusal({ kind: { type } }: { kind: Kind }) {
  if (!session.value || maySubmit(type)) return null;
  const scopes = KINDS[type]?.hasPrograms ? "scopes submit and run" : "scope submit";
  return <p class="trouble">To submit jobs of this kind, log in with a token that has the {scopes}.</p>;
}

function Heading({ kind }: { kind: Kind }) {
  const page = KINDS[kind.type]?.page;
  return (
    <div class="row">
      <h1 class="grow">{kind.type}</h1>
      {page && (
        <a class="button" href={page.address}>
          Open {page.title}
        </a>
      )}
      <Button onClick={() => showKind("")}>All kinds</Button>
    </div>
  );
}

const COLUMNS: Column<Job>[] = [
  {
    id: "job",
    title: "job",
    cell: (job) => <JobName job={job} />,
  },
  { id: "state", title: "state", cell: (job) => <StateLabel state={job.state} /> },
  numberColumn("done", "done", (job) =>
    job.state === "done" ? formatCompact(job.total) : formatPercent(job.progress),
  ),
  {
    id: "parameters",
    title: "parameters",
    canWrap: true,
    cell: (job) => <span class="small soft">{summarizeJob(job)}</span>,
  },
];
/** Maximum number of listed jobs; the page Jobs lists all. */
const MAX_JOBS = 10;

function RecentJobs({ kind }: { kind: Kind }) {
  const jobs = [...snapshot.value.jobs.values()]
    .map((job) => job.value)
    .filter((job) => job.type === kind.type)
    .sort((left, right) => (left.created < right.created ? 1 : -1));
  if (!jobs.length)
    return (
      <EmptyMessage title="No jobs of this kind yet">
        <p>Submit one with the form. Its page shows progress, logs and the result.</p>
      </EmptyMessage>
    );
  return (
    <section class="part ages">
      <div class="row">
        <h2 class="grow">Recent jobs</h2>
        <a href={jobListAddress(`kind:${kind.type}`)}>All jobs of this kind</a>
      </div>
      <Table
        label="Recent jobs of this kind"
        columns={COLUMNS}
        rows={jobs.slice(0, MAX_JOBS)}
        rowKey={(job) => job.job_id}
      />
    </section>
  );
}
