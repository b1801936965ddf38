/** Schedules with their next runs and the outcomes of past runs. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { jobAddress, workflowAddress } from "../../kinds";
import type { Schedule } from "../../lib/api";
import { formatInteger } from "../../lib/format";
import { clusterTime, knownUntil } from "../../lib/live";
import { formatTimestamp } from "../../lib/naming";
import { Button, TextButton } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { askConfirmation } from "../../ui/dialog";
import { Outline } from "../../ui/outline";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, type Column, numberColumn } from "../../ui/table";
import { runAction, showError, showToast } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { truncate } from "./model/truncate";
import { PolledTable } from "./listing";
import { usePolling } from "./model/polling";
import {
  deleteSchedule,
  describeMissed,
  loadSchedule,
  loadSchedules,
  allowedScheduleVerbs,
  controlSchedule,
  describeTimes,
  formatTimeUntil,
  type ScheduleVerb,
} from "./model/schedules";

/** Interval in seconds between requests for the list. */
const REFRESH_SECONDS = 5;

const VERB_LABELS: Record<ScheduleVerb, string> = { pause: "Pause", resume: "Resume", run: "Run now" };
const DONE_TEXTS: Record<ScheduleVerb, string> = {
  pause: "Paused",
  resume: "Resumed",
  run: "Submitted a job from schedule",
};

export function Schedules() {
  /** Number of actions on this page, each of which refreshes the list. */
  const acts = useSignal(0);
  const openSchedule = useSignal("");
  const answer = usePolling(`schedules ${acts.value}`, REFRESH_SECONDS, loadSchedules);
  const { value, problem } = answer.value;
  if (problem?.status === 404) return null;
  const act = async (name: string, verb: ScheduleVerb) => {
    try {
      const { job_id: job, workflow_id: workflow } = await controlSchedule(name, verb);
      const made = job ?? workflow;
      showToast(
        `${workflow ? "Submitted a workflow from schedule" : DONE_TEXTS[verb]} ${name}${made ? `: ${made}` : ""}`,
      );
    } catch (error) {
      showError(`${VERB_LABELS[verb]}: ${name}`, error);
    }
    acts.value += 1;
  };
  const remove = async (name: string) => {
    const question = {
      title: `Delete schedule ${name}?`,
      text: "The schedule stops submitting. Jobs and workflows that it has submitted continue.",
      buttonLabel: "Delete schedule",
      isDangerous: true,
    };
    if (!(await askConfirmation(question))) return;
    await runAction(`Delete ${name}`, `Deleted schedule ${name}`, deleteSchedule(name));
    acts.value += 1;
  };
  const open = (name: string) => (openSchedule.value = openSchedule.peek() === name ? "" : name);
  return (
    <PolledTable
      title="Schedules"
      pollState={answer.value}
      columns={createColumns(act, open)}
      openKey={openSchedule.value}
      empty={<NoSchedules />}
    >
      {value?.some((row) => row.name === openSchedule.value) && (
        <ScheduleDetails key={openSchedule.value} name={openSchedule.value}>
          <Button onClick={() => void act(openSchedule.value, "run")}>{VERB_LABELS.run}</Button>
          <Button class="danger" onClick={() => void remove(openSchedule.value)}>
            Delete
          </Button>
        </ScheduleDetails>
      )}
    </PolledTable>
  );
}

function createColumns(
  act: (name: string, verb: ScheduleVerb) => Promise<void>,
  open: (name: string) => void,
): Column<Schedule>[] {
  return [
    {
      id: "name",
      title: "schedule",
      cell: ({ name }) => <TextButton onClick={() => open(name)}>{name}</TextButton>,
    },
    { id: "state", title: "state", cell: (row) => <StateLabel state={row.state} /> },
    { id: "times", title: "runs", cell: (row) => <span class="num">{describeTimes(row)}</span> },
    { id: "type", title: "submits", cell: ({ type }) => type },
    {
      id: "next",
      title: "next run",
      cell: ({ next_run: next, state }) => (
        <span class="num" title={next ?? ""}>
          {state === "active" && formatTimeUntil(next, clusterTime(knownUntil.value))}
        </span>
      ),
    },
    { id: "last", title: "last run", canWrap: true, cell: (row) => <LastRun row={row} /> },
    numberColumn("count", "submitted", (row) => formatInteger(row.submitted)),
    {
      id: "lacking",
      title: "did not run",
      cell: (row) => <span class={row.failed ? "bad" : ""}>{describeMissed(row)}</span>,
    },
    {
      id: "acts",
      title: <span class="visually-hidden">acts</span>,
      cell: (row) => (
        <span class="row acts">
          {allowedScheduleVerbs(row)
            .filter((verb) => verb !== "run")
            .map((verb) => (
              <Button
                key={verb}
                aria-label={`${VERB_LABELS[verb]}: ${row.name}`}
                onClick={() => void act(row.name, verb)}
              >
                {VERB_LABELS[verb]}
              </Button>
            ))}
        </span>
      ),
    },
  ];
}

function LastRun({ row }: { row: Schedule }) {
  const { last_run: at, last_job_id: job, last_workflow_id: workflow, last_outcome: outcome } = row;
  if (!at) return <span class="soft">none yet</span>;
  const text = truncate(outcome ?? "", 200);
  const name = job ?? workflow ?? "";
  // The reason for a skipped run names the earlier run.
  const index = name ? text.indexOf(name) : -1;
  const [before, after] = index < 0 ? [`${text} `, ""] : [text.slice(0, index), text.slice(index + name.length)];
  return (
    <span class="small">
      <span class="num">{formatTimestamp(at)}</span> {before}
      {name && (
        <a class="mono" href={job ? jobAddress(job) : workflowAddress(name)}>
          {name}
        </a>
      )}
      {after} {workflow && row.last_workflow_state && <StateLabel state={row.last_workflow_state} />}
    </span>
  );
}

/** Upcoming runs, the submitted job, and actions next to the name. */
function ScheduleDetails({ name, children }: { name: string; children: ComponentChildren }) {
  const { value, problem } = useRequest((signal) => loadSchedule(name, signal));
  if (problem) return <ErrorMessage subject={`Schedule ${name}`} problem={problem} />;
  if (!value) return <LoadingRows rows={2} />;
  const { next_runs: next, job, workflow, overlap, catch_up: catches, timezone } = value;
  return (
    <section class="part" aria-label={`Schedule ${name}`}>
      <div class="row">
        <h3 class="grow">{name}</h3>
        {children}
      </div>
      {next && next.length > 0 && (
        <p>
          Next runs: <span class="num">{next.map((at) => formatTimestamp(at)).join(", ")}</span>
        </p>
      )}
      <p class="soft small">
        {timezone}. {overlap ? "Runs may overlap." : "A run is skipped while the previous run is still active."}{" "}
        {catches === "last" ? "If runs are missed, the last one is submitted late." : "Missed runs are not submitted."}
      </p>
      {job && <Outline value={job} label="Submitted job" />}
      {workflow && <pre>{workflow}</pre>}
    </section>
  );
}

function NoSchedules() {
  return (
    <EmptyMessage title="No schedule yet">
      <p>A schedule submits a job or a workflow at regular times. To add a schedule from a shell:</p>
      <pre>cluster schedule add nightly --cron "0 3 * * *" -- workflow submit nightly.yaml</pre>
    </EmptyMessage>
  );
}
