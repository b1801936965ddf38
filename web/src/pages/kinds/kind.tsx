/** One kind: its form, the open job, and other jobs. */

import { useLayoutEffect } from "preact/hooks";
import { clusterAddress, KINDS } from "../../kinds";
import type { Job, Kind } from "../../lib/api";
import { formatCompact, formatPercent } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { snapshot } from "../../lib/live";
import { summarizeJob } from "../../lib/summary";
import { Button } from "../../ui/button";
import { JobName } from "../../ui/job-name";
import { StateLabel } from "../../ui/state";
import { KindForm } from "../../ui/submission";
import { EmptyMessage, Table, type Column, numberColumn } from "../../ui/table";
import { JobView } from "./job";
import { draft, storeDraft, showJob, showKind, state } from "./model/state";

function focusForm(): void {
  document.querySelector<HTMLElement>(".kind-form .stack .fields :is(input, select)")?.focus();
}

export function KindView({ kind }: { kind: Kind }) {
  useLayoutEffect(() => bindShortcuts({ N: { text: "first field of the form", run: focusForm } }), []);
  return (
    <div class="kind">
      <section class="kind-form" aria-label="New job">
        <Heading kind={kind} />
        <KindForm kind={kind} draft={draft.value} onChange={storeDraft} onSubmitted={showJob} />
      </section>
      <div class="kind-job">
        {state.job.value ? <JobView key={state.job.value} /> : <Welcome />}
        <OtherJobs kind={kind} />
      </div>
    </div>
  );
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

function Welcome() {
  return (
    <EmptyMessage title="No job is open">
      <p>Submit one with the form, or open one from the list. Its progress and its result are shown here.</p>
    </EmptyMessage>
  );
}

const COLUMNS: Column<Job>[] = [
  {
    id: "job",
    title: "job",
    cell: (job) => <JobName job={job} onOpen={() => showJob(job.job_id)} />,
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
/** Maximum number of listed jobs; the Cluster page lists all. */
const MAX_JOBS = 10;

function OtherJobs({ kind }: { kind: Kind }) {
  const jobs = [...snapshot.value.jobs.values()]
    .map((job) => job.value)
    .filter((job) => job.type === kind.type)
    .sort((left, right) => (left.created < right.created ? 1 : -1));
  if (!jobs.length) return null;
  return (
    <section class="part ages">
      <div class="row">
        <h2 class="grow">Jobs of this kind</h2>
        <a href={`${clusterAddress()}&filter=kind:${kind.type}`}>All on the Cluster page</a>
      </div>
      <Table
        label="Jobs of this kind"
        columns={COLUMNS}
        rows={jobs.slice(0, MAX_JOBS)}
        rowKey={(job) => job.job_id}
        openKey={state.job.value}
      />
    </section>
  );
}
