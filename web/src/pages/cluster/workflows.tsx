/** List of workflows, or the open workflow. */

import type { WorkflowSummary } from "../../lib/api";
import "./workflows.css";
import { useSignal } from "@preact/signals";
import { formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { formatTimestamp } from "../../lib/naming";
import { clusterTime, connection, knownUntil } from "../../lib/live";
import { Button, TextButton } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { ProgressBar } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { truncate } from "./model/truncate";
import { usePolling } from "./model/polling";
import { isWritingWorkflow, openWorkflow, state } from "./model/state";
import { describeCounts, loadWorkflows } from "./model/workflows";
import { Schedules } from "./schedules";
import { WorkflowDetails } from "./workflow";

const NewWorkflow = lazy(() => import("./new-workflow").then((part) => part.NewWorkflow), 0);

/** Interval in seconds between requests for the list. */
const REFRESH_SECONDS = 3;
/** Number of workflows listed first, and maximum number; older ones are available in the shell. */
const INITIAL_LIMIT = 100;
const MAX_LIMIT = 1000;

export function Workflows() {
  const id = state.workflow.value;
  if (id) return <WorkflowDetails id={id} key={id} />;
  return (
    <div class="workflow-lists">
      <WorkflowTable />
      <Schedules />
    </div>
  );
}

const COLUMNS: Column<WorkflowSummary>[] = [
  {
    id: "name",
    title: "workflow",
    cell: ({ workflow_id: id, name }) => <TextButton onClick={() => openWorkflow(id)}>{truncate(name, 60)}</TextButton>,
  },
  { id: "state", title: "state", cell: (row) => <StateLabel state={row.state} /> },
  {
    id: "progress",
    title: "progress",
    cell: ({ name, counts, total }) => (
      <span class="progress">
        <ProgressBar ratio={total ? (counts.done ?? 0) / total : 1} label={`Progress of workflow ${name}`} />
        <span class="num">{formatPercent(total ? (counts.done ?? 0) / total : 1)}</span>
      </span>
    ),
  },
  {
    id: "actions",
    title: "actions",
    canWrap: true,
    cell: ({ counts, total }) => <span class="small">{describeCounts(counts, total)}</span>,
  },
  numberColumn("created", "submitted", ({ created }) => formatTimestamp(created)),
  numberColumn("time", "took", (row) => formatSeconds(workflowMs(row))),
  { id: "id", title: "id", cell: ({ workflow_id: id }) => <span class="mono soft">{id}</span> },
];

function workflowMs({ created, ended }: WorkflowSummary): number {
  const end = ended ? Date.parse(ended) : clusterTime(knownUntil.value);
  return Math.max(0, (end - Date.parse(created)) / 1000);
}

function WorkflowTable() {
  const limit = useSignal(INITIAL_LIMIT);
  const answer = usePolling(`workflows ${limit.value}`, REFRESH_SECONDS, (signal) =>
    loadWorkflows(limit.peek(), signal),
  );
  const { value, problem } = answer.value;
  return (
    <section class="stack">
      {problem && connection.value === "live" && <ErrorMessage subject="list of workflows" problem={problem} />}
      {value ? (
        <>
          <div class="row">
            <h2 class="grow">
              Workflows <span class="num soft">{formatInteger(value.workflows.length)}</span>
            </h2>
            <Button onClick={() => (isWritingWorkflow.value = true)}>New workflow</Button>
            {isWritingWorkflow.value && <NewWorkflow onClose={() => (isWritingWorkflow.value = false)} />}
          </div>
          <div class="ages">
            <Table
              label="Workflows"
              columns={COLUMNS}
              rows={value.workflows}
              rowKey={(row) => row.workflow_id}
              class="cards"
              empty={<NoWorkflows />}
            />
          </div>
          {value.cursor && limit.value < MAX_LIMIT && (
            <Button onClick={() => (limit.value = MAX_LIMIT)}>Show older ones</Button>
          )}
          {value.cursor && limit.value >= MAX_LIMIT && (
            <p class="soft small">
              The newest {formatInteger(MAX_LIMIT)}. Older ones: <code>cluster workflow list</code>
            </p>
          )}
        </>
      ) : (
        !problem && <LoadingRows rows={6} />
      )}
    </section>
  );
}

function NoWorkflows() {
  return (
    <EmptyMessage title="No workflow yet">
      <p>A workflow is a graph of jobs in a file. From a shell:</p>
      <pre>cluster workflow submit workflow.yaml</pre>
    </EmptyMessage>
  );
}
