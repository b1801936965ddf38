/** The list of all jobs: search, details, and actions on one or many jobs. */

import { useComputed, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { jobAddress, KINDS } from "../../kinds";
import { get, Problem, session, type Job, type Jobs as Page } from "../../lib/api";
import { summarizeJob } from "../../lib/summary";
import { formatAmount, formatInteger, formatPercent, formatRate, formatSeconds } from "../../lib/format";
import { isEnded, runSeconds } from "../../lib/fleet";
import { storeJob, clusterTime, connection, hasSnapshot, increaseCapacity, knownUntil } from "../../lib/live";
import { formatTimestamp, shortId, formatWait } from "../../lib/naming";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { Button, TextButton } from "../../ui/button";
import { ProgressBar } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column } from "../../ui/table";
import { ACTION_LABELS, countActions, performAction } from "../../ui/job-actions";
import { JobState } from "./job-state";
import { FILTER_NAMES, toggleToken, toServerFilter } from "./model/filter";
import { knownJobTitle } from "./model/names";
import {
  closeForm,
  draft,
  openForm,
  filter,
  fleet,
  getJob,
  jobRows,
  selectJob,
  selectJobs,
  selectedJobs,
  state,
} from "./model/state";
import { ErrorMessage } from "../../ui/error-message";

/** Shell command that submits a first job. */
const FIRST_COMMAND = Object.values(KINDS)
  .filter((kind) => kind.page)
  .at(-1)?.exampleCommand;
/** Number of rows drawn first, and added on request. */
const ROW_STEP = 100;
/** Number of jobs per request. */
const PAGE_SIZE = 200;
const STATES = ["blocked", "queued", "running", "paused", "failed", "done", "cancelled", "skipped"] as const;

/** Track how far back jobs of this filter are loaded, and load older ones. */
function useOlderJobs() {
  const cursor = useSignal<string | null | undefined>(undefined);
  const isBusy = useSignal(false);
  const problem = useSignal<Problem | undefined>(undefined);
  const matching = useSignal<number | undefined>(undefined);
  const query = useComputed(() => JSON.stringify(toServerFilter(filter.value, STATES).query));
  const loadMore = async () => {
    if (isBusy.peek()) return;
    isBusy.value = true;
    try {
      const page = await get<Page>("/api/jobs", {
        ...JSON.parse(query.peek()),
        limit: PAGE_SIZE,
        cursor: cursor.peek(),
      });
      increaseCapacity(page.jobs.length);
      page.jobs.forEach(storeJob);
      cursor.value = page.cursor;
      matching.value = page.matching;
      problem.value = undefined;
    } catch (error) {
      problem.value = error instanceof Problem ? error : undefined;
    }
    isBusy.value = false;
  };
  const currentQuery = query.value;
  useEffect(() => {
    cursor.value = matching.value = undefined;
    // Load jobs that the snapshot does not contain, such as jobs that failed yesterday.
    const timer = setTimeout(() => connection.peek() === "live" && void loadMore(), 400);
    return () => clearTimeout(timer);
  }, [currentQuery, hasSnapshot.value]);
  return { cursor, matching, busy: isBusy, problem, more: loadMore };
}

const SHORTCUTS: Shortcuts = {
  j: { text: "next job", run: () => moveRow(1) },
  k: { text: "previous job", run: () => moveRow(-1) },
  Enter: { text: "open the row's job", run: () => ((id) => id && location.assign(jobAddress(id)))(focusedJob()) },
  x: { text: "select the row's job, or deselect it", run: () => ((id) => id && selectJob(id))(focusedJob()) },
  c: { text: "cancel the job, after a confirmation", run: () => performOnJob("cancel") },
  r: { text: "retry the job", run: () => performOnJob("retry") },
  Escape: {
    text: "close the open panel",
    run: () => (draft.peek() ? closeForm() : focusRow(0)),
  },
};

function performOnJob(verb: "cancel" | "retry"): void {
  const id = focusedJob();
  if (id) void performAction(verb, [id]);
}

export function Jobs() {
  useLayoutEffect(() => bindShortcuts(SHORTCUTS), []);
  const rowLimit = useSignal(ROW_STEP);
  const older = useOlderJobs();
  if (!hasSnapshot.value) return <LoadingRows rows={8} />;
  const all = jobRows.value;
  const visible = all.slice(0, rowLimit.value);
  return (
    <div class="jobs">
      <FilterBar />
      <SelectedJobs />
      {older.problem.value && (
        <ErrorMessage subject="list of jobs" problem={older.problem.value} onRetry={() => void older.more()} />
      )}
      <div class="ages" onKeyDown={(event) => onRowKey(event)}>
        <Table
          label="Jobs"
          columns={createColumns(visible)}
          rows={visible}
          rowKey={(id) => id}
          empty={<NoJobs older={typeof older.cursor.value === "string"} />}
          class="cards job-table"
        />
      </div>
      <TableFooter
        visible={visible.length}
        matching={all.length}
        older={older}
        onMore={() => (rowLimit.value += ROW_STEP)}
      />
    </div>
  );
}

// -- above the table ------------------------------------------------------------------------------------------------

function FilterBar() {
  const counts = fleet.value.status?.jobs;
  const unknown = filter.value.unknown;
  return (
    <>
      <div class="row filter-bar">
        <input
          id="filter"
          type="search"
          class="mono grow"
          aria-label="Filter jobs"
          placeholder="Search: text, ID, tag:NAME, state:running, kind:NAME"
          spellcheck={false}
          autocomplete="off"
          value={state.filter.value}
          onInput={(event) => (state.filter.value = event.currentTarget.value)}
          onKeyDown={leaveFilter}
        />
        <Button class="primary" onClick={() => openForm()}>
          New job
        </Button>
      </div>
      <div class="segments loose" role="group" aria-label="States">
        {STATES.map((name) => (
          <Button
            key={name}
            aria-pressed={filter.value.tokens.some(
              (each) => each.name === "state" && each.value === name && !each.isNegated,
            )}
            onClick={() => (state.filter.value = toggleToken(state.filter.value, `state:${name}`))}
          >
            <StateLabel state={name} /> <span class="num soft">{formatInteger(counts?.[name] ?? 0)}</span>
          </Button>
        ))}
      </div>
      {unknown.length > 0 && (
        <p class="small warn" role="status">
          The filter has no key {unknown.join(", ")}, so it searches for the text. Keys: {FILTER_NAMES.join(", ")}.
        </p>
      )}
    </>
  );
}

/**
 * Move the focus from the filter to the rows on Enter or Escape. Stop the event, which would otherwise activate the
 * focused element.
 */
function leaveFilter(event: KeyboardEvent): void {
  if (event.key !== "Escape" && event.key !== "Enter") return;
  event.preventDefault();
  (event.currentTarget as HTMLElement).blur();
  focusRow(0);
}

function SelectedJobs() {
  const ids = [...selectedJobs.value];
  if (!ids.length) return null;
  // Read the signals, so that the actions follow state changes.
  for (const id of ids) getJob(id)?.value;
  return (
    <div class="row selected-jobs" role="group" aria-label="Selected jobs">
      <strong>{ids.length} selected</strong>
      {countActions(ids).map(([act, count]) => (
        <Button
          key={act}
          class={act === "cancel" || act === "delete" ? "danger" : ""}
          onClick={() => void performAction(act, ids)}
        >
          {ACTION_LABELS[act]} {count}
        </Button>
      ))}
      <Button class="plain" onClick={() => selectJobs([])}>
        Select none
      </Button>
    </div>
  );
}

// -- rows -----------------------------------------------------------------------------------------------------------

function JobCell({ id, render: of }: { id: string; render: (job: Job) => ComponentChildren }) {
  const job: Signal<Job> | undefined = getJob(id);
  return job ? of(job.value) : null;
}

function SelectJob({ id }: { id: string }) {
  return (
    <input
      type="checkbox"
      aria-label={`Select job ${id}`}
      checked={selectedJobs.value.has(id)}
      onChange={(event) => selectJob(id, event.currentTarget.checked)}
    />
  );
}

function SelectAllJobs({ ids }: { ids: readonly string[] }) {
  const count = ids.filter((id) => selectedJobs.value.has(id)).length;
  return (
    <input
      type="checkbox"
      aria-label="Select all shown jobs"
      checked={count > 0 && count === ids.length}
      indeterminate={count > 0 && count < ids.length}
      onChange={(event) => selectJobs(event.currentTarget.checked ? ids : [])}
    />
  );
}

function Progress({ job }: { job: Job }) {
  if (job.state === "done") return <span class="num soft">{formatAmount(job.total, "unit")}</span>;
  return (
    <span class="progress">
      <ProgressBar ratio={job.progress} label={`Progress of job ${job.job_id}`} />
      <span class="num">{formatPercent(job.progress)}</span>
    </span>
  );
}

/** Duration or waiting time of a job. */
function JobTime({ job }: { job: Job }) {
  const at = clusterTime(knownUntil.value);
  const run = runSeconds(job, at);
  if (run !== null) return <span class="num">{formatSeconds(run)}</span>;
  return <span class="num soft waits">{formatWait(job, at)}</span>;
}

/** Reason for failing or waiting, then the parameters, on one line. */
function JobDetails({ job }: { job: Job }) {
  const why =
    job.error ?? job.waiting_because ?? (job.state === "cancelling" ? "lanes are stopping" : job.notes.join("; "));
  const text = summarizeJob(job);
  return (
    <span class="clip small" title={[why, text].filter(Boolean).join("\n")}>
      {why && <span class={job.error ? "bad" : "why"}>{why} </span>}
      <span class="soft">{text}</span>
    </span>
  );
}

/** Create a column in which each job redraws its own cell. */
function jobColumn(id: string, title: string, render: (job: Job) => ComponentChildren, end = false): Column<string> {
  return { id, title, isNumeric: end, cell: (job) => <JobCell id={job} render={render} /> };
}

function jobNumber(id: string, title: string, text: (job: Job) => string): Column<string> {
  return jobColumn(id, title, (job) => <span class="num">{text(job)}</span>, true);
}

/** Column with the tenant, displayed if a job belongs to another tenant. */
const TENANT_COLUMN = jobColumn("tenant", "tenant", (job) => <span class="mono">{job.tenant}</span>);

function createColumns(ids: readonly string[]): Column<string>[] {
  const own = session.value?.tenant ?? "default";
  const shared = ids.some((id) => getJob(id)?.peek().tenant !== own);
  return [
    { id: "select", title: <SelectAllJobs ids={ids} />, cell: (id) => <SelectJob id={id} /> },
    {
      id: "id",
      title: "job",
      cell: (id) => (
        <span class="row names">
          <a class="link opens" aria-label={`${knownJobTitle(id, "")}, ${id}`} href={jobAddress(id)}>
            {knownJobTitle(id, "")}
          </a>
          <span class="mono soft small" title={id}>
            {shortId(id)}
          </span>
        </span>
      ),
    },
    ...(shared ? [TENANT_COLUMN] : []),
    jobColumn("state", "state", (job) => <JobState job={job} />),
    jobColumn("progress", "progress", (job) => <Progress job={job} />),
    jobNumber("rate", "units/s", (job) => (job.rate && !isEnded(job) ? formatRate(job.rate).replace("/s", "") : "")),
    jobNumber("eta", "left", (job) =>
      job.eta_seconds !== null && !isEnded(job) ? formatSeconds(job.eta_seconds) : "",
    ),
    jobNumber("created", "submitted", (job) => formatTimestamp(job.created)),
    jobColumn("time", "ran", (job) => <JobTime job={job} />, true),
    jobColumn("priority", "queue", (job) => job.queue),
    jobColumn("details", "details", (job) => <JobDetails job={job} />),
  ];
}

function NoJobs({ older }: { older: boolean }) {
  if (state.filter.value) {
    return (
      <EmptyMessage title="No job matches the filter">
        <p>
          {older && "Older jobs might match: see below. "}
          <TextButton onClick={() => (state.filter.value = "")}>Clear the filter</TextButton>
        </p>
      </EmptyMessage>
    );
  }
  return (
    <EmptyMessage title="No jobs yet">
      <p>
        Press <kbd>n</kbd>, or <TextButton onClick={() => openForm()}>fill in a form</TextButton>, or from a shell:
      </p>
      <pre>{FIRST_COMMAND}</pre>
    </EmptyMessage>
  );
}

function TableFooter({
  visible,
  matching,
  older,
  onMore,
}: {
  visible: number;
  matching: number;
  older: ReturnType<typeof useOlderJobs>;
  onMore: () => void;
}) {
  // Counts arrive later than jobs.
  const countedJobs = Object.values(fleet.value.status?.jobs ?? {}).reduce((sum, each) => sum + each, 0);
  const hasOlder = typeof older.cursor.value === "string";
  const { isComplete } = toServerFilter(filter.value, STATES);
  const found = hasOlder && isComplete ? Math.max(matching, older.matching.value ?? 0) : matching;
  const total = Math.max(countedJobs, found);
  const words = hasOlder && !isComplete ? "loaded jobs match" : "matching";
  return (
    <p class="row foot soft small">
      <span>
        {formatInteger(found)} {words} of {formatInteger(total)} jobs
        {visible < found ? `, ${formatInteger(visible)} shown` : ""}.
      </span>
      {visible < matching && <Button onClick={onMore}>Show {Math.min(ROW_STEP, matching - visible)} more</Button>}
      {hasOlder && (
        <Button disabled={older.busy.value} onClick={() => void older.more()}>
          {older.busy.value ? "Loading" : "Show older jobs"}
        </Button>
      )}
    </p>
  );
}

// -- keys -----------------------------------------------------------------------------------------------------------

function jobButtons(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(".job-table .opens")];
}

/** Return the ID of the focused row's job. */
function focusedJob(): string | undefined {
  return document.activeElement?.closest<HTMLElement>("tr[data-row]")?.dataset.row;
}

function focusRow(index: number): void {
  const buttons = jobButtons();
  const button = buttons[Math.max(0, Math.min(index, buttons.length - 1))];
  button?.focus();
  button?.scrollIntoView({ block: "nearest" });
}

/** Move the focus by a number of rows, starting at the first row. */
function moveRow(offset: number): void {
  const buttons = jobButtons();
  const focusedRow = buttons.findIndex((button) => button.closest("tr")?.dataset.row === focusedJob());
  focusRow(focusedRow >= 0 ? focusedRow + offset : 0);
}

function onRowKey(event: KeyboardEvent): void {
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!move || !(event.target as HTMLElement).matches(".opens")) return;
  event.preventDefault();
  moveRow(move);
}
