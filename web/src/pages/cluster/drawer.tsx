/** Panel with one job: its state, result, events and actions. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { addressOf, pageOf } from "../../kinds";
import { asProblem, get, type Problem, type Job, type JobRelations, type RelatedJob } from "../../lib/api";
import { copyText, download } from "../../lib/export";
import { formatClock, formatCompact, formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { isEnded, runSeconds } from "../../lib/fleet";
import { jobProblem, watchJob } from "../../lib/jobs";
import { recheckJob, clusterTime, knownUntil } from "../../lib/live";
import { formatTimestamp, jobTitle } from "../../lib/naming";
import { createDraft } from "../../lib/draft";
import { typedParameters, explainWait, jobWorkflowAddress } from "../../lib/summary";
import { Button } from "../../ui/button";
import { useResult } from "../../ui/request";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { numberColumn, LoadingRows, Table, type Column } from "../../ui/table";
import { showToast } from "../../ui/toast";
import { allowedActions, performAction, type JobAction } from "./model/job-actions";
import { followJobEvents } from "./model/events";
import { JobState } from "./job-state";
import { describeEvent } from "./model/event-summaries";
import { Outline } from "../../ui/outline";
import { openForm, openJob } from "./model/state";
import { ErrorMessage } from "../../ui/error-message";

/** Maximum number of jobs listed per relation. */
const MAX_RELATED = 20;

const ACTION_LABELS: Record<JobAction, string> = {
  cancel: "Cancel",
  pause: "Pause",
  resume: "Resume",
  retry: "Retry",
  delete: "Delete",
};

export function Drawer({ id }: { id: string }) {
  const job = useMemo(() => watchJob(id), [id]);
  const missing = useMemo(() => jobProblem(id), [id]);
  useEffect(() => recheckJob(id), [id]);
  const self = useRef<HTMLElement>(null);
  const opener = useRef(document.activeElement);
  useEffect(
    () => () => {
      const row = document.querySelector<HTMLElement>(`tr[data-row="${CSS.escape(id)}"] .opens`);
      (row ?? (opener.current as HTMLElement | null))?.focus({ preventScroll: true });
    },
    [id],
  );
  return (
    <aside class="drawer" aria-label={`Job ${id}`} ref={self} tabIndex={-1}>
      <header class="row">
        <h2 class="grow">{job.value ? jobTitle(job.value) : <span class="mono">{id}</span>}</h2>
        <Button
          class="plain"
          onClick={() =>
            void copyText(id).then((done) =>
              showToast(done ? "Copied the job ID" : "The browser does not allow this page to copy"),
            )
          }
        >
          Copy job ID
        </Button>
        <Button class="plain" onClick={() => openJob("")}>
          Close
        </Button>
      </header>
      {job.value ? (
        <DrawerBody job={job.value} />
      ) : missing.value?.status === 404 ? (
        <p class="trouble" role="alert">
          {missing.value.title === "Deleted"
            ? `Job ${id} was deleted.`
            : `There is no job ${id}, or it belongs to another tenant.`}
        </p>
      ) : missing.value ? (
        <ErrorMessage subject={`Job ${id}`} problem={missing.value} onRetry={() => location.reload()} />
      ) : (
        <LoadingRows rows={6} />
      )}
    </aside>
  );
}

function DrawerBody({ job }: { job: Job }) {
  const page = pageOf(job.type);
  return (
    <>
      <div class="row">
        <JobState job={job} />
        <span class="soft">{job.type}</span>
        <span class="mono soft small">{job.job_id}</span>
        {jobWorkflowAddress(job.job_id) && <a href={jobWorkflowAddress(job.job_id)}>Its workflow</a>}
      </div>
      <div class="ages">
        <Progress job={job} />
      </div>
      {job.waiting_because && <p>{explainWait(job)}</p>}
      {job.state === "cancelling" && <p class="soft">The job is cancelled when its last lane has stopped.</p>}
      {job.error && (
        <p class="trouble" role="alert">
          {job.error}
        </p>
      )}
      {job.notes.map((note) => (
        <p class="soft" key={note}>
          {note}
        </p>
      ))}
      <div class="row">
        <a class="button" href={addressOf(job.type, job.job_id)}>
          Open in {page.title}
        </a>
        {allowedActions(job).map((act) => (
          <Button
            key={act}
            class={act === "cancel" || act === "delete" ? "danger" : ""}
            onClick={() => void performAction(act, [job.job_id])}
          >
            {ACTION_LABELS[act]}
          </Button>
        ))}
        <Button onClick={() => openForm(createDraft(job))}>Submit again…</Button>
      </div>
      <ResultSection job={job} />
      <Facts job={job} />
      <Section title="Parameters">
        <Outline value={typedParameters(job.type, job.parameters)} label="Parameters" />
      </Section>
      <JobWorkers job={job} />
      <Relations job={job} />
      <JobEvents id={job.job_id} />
    </>
  );
}

function Section({ title, children, note }: { title: string; children: ComponentChildren; note?: ComponentChildren }) {
  return (
    <section class="part">
      <div class="row">
        <h3 class="grow">{title}</h3>
        {note}
      </div>
      {children}
    </section>
  );
}

function Facts({ job }: { job: Job }) {
  const facts: [string, ComponentChildren][] = [
    ["units", `${formatInteger(job.done)} of ${formatInteger(job.total)}`],
    ["submitted", formatTimestamp(job.created)],
    ["started", formatTimestamp(job.started)],
    ["ended", formatTimestamp(job.ended)],
    ["ran", formatSeconds(runSeconds(job, clusterTime(knownUntil.value)))],
    ["tenant", job.tenant === "default" ? "" : job.tenant],
    ["queue", job.queue],
    ["device", job.device.replace("_", " ")],
    [
      "leases",
      formatInteger(job.usage.leases) +
        (job.usage.expired_leases ? `, ${formatInteger(job.usage.expired_leases)} expired` : ""),
    ],
    ["lane time", formatSeconds(job.usage.lane_seconds)],
  ];
  return (
    <Section title="Facts">
      <dl class="facts">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => [
            <dt key={name}>{name}</dt>,
            <dd class="num" key={`${name}=`}>
              {value}
            </dd>,
          ])}
      </dl>
    </Section>
  );
}

/** Workers that computed the job. */
function JobWorkers({ job }: { job: Job }) {
  const shares = Object.entries(job.usage.workers);
  if (!shares.length) return null;
  const done = shares.reduce((sum, [, share]) => sum + share.units, 0);
  const columns: Column<(typeof shares)[number]>[] = [
    { id: "worker", title: "worker", cell: ([worker]) => <span class="mono">{worker}</span> },
    { id: "device", title: "device", cell: ([, share]) => share.device },
    numberColumn("units", "units", ([, share]) => formatCompact(share.units)),
    numberColumn("share", "share", ([, share]) => formatPercent(share.units / Math.max(1, done))),
    numberColumn("leases", "leases", ([, share]) => formatInteger(share.leases)),
  ];
  return (
    <Section title="Computed by">
      <Table label="Workers of this job" rows={shares} rowKey={([worker]) => worker} columns={columns} />
    </Section>
  );
}

/** Jobs before and after this job, requested immediately if the job waits for one or was skipped because of one. */
function Relations({ job }: { job: Job }) {
  const found = useSignal<JobRelations | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const waits = job.state === "blocked" || job.state === "skipped";
  const ask = async () => {
    problem.value = undefined;
    try {
      found.value = await get<JobRelations>(`/api/jobs/${job.job_id}/relations`);
    } catch (error) {
      problem.value = asProblem(error);
    }
  };
  useEffect(() => {
    found.value = undefined;
    if (waits) void ask();
  }, [job.job_id, job.state]);
  const about = found.value;
  return (
    <Section title="Before and after">
      {problem.value && (
        <ErrorMessage subject="Jobs before and after" problem={problem.value} onRetry={() => void ask()} />
      )}
      {about ? (
        <>
          {job.root && <RelatedJobs title="skipped because of" rows={[{ job_id: job.root, state: null }]} count={1} />}
          <RelatedJobs title="it waits for" rows={about.parents.filter((row) => !row.met)} />
          <RelatedJobs title="it waited for" rows={about.parents.filter((row) => row.met)} />
          <RelatedJobs title="wait for it" rows={about.children} count={about.children_count} />
          <RelatedJobs title="skipped because of it" rows={about.skipped} count={about.skipped_count} />
          {!about.parents.length && !about.children_count && !about.skipped_count && (
            <p class="soft">It comes after no other job, and none waits for it.</p>
          )}
        </>
      ) : (
        <Button onClick={() => void ask()}>Show jobs before and after it</Button>
      )}
    </Section>
  );
}

function RelatedJobs({ title, rows, count = rows.length }: { title: string; rows: RelatedJob[]; count?: number }) {
  if (!count) return null;
  const visibleRows = rows.slice(0, MAX_RELATED);
  return (
    <>
      <p class="soft">
        {title}: {formatInteger(count)}
      </p>
      <ul class="now">
        {visibleRows.map((row) => (
          <li class="row" key={row.job_id}>
            <Button class="link mono" onClick={() => openJob(row.job_id)}>
              {row.job_id}
            </Button>
            {row.state && <StateLabel state={row.state} />}
          </li>
        ))}
      </ul>
      {count > visibleRows.length && <p class="soft small">and {formatInteger(count - visibleRows.length)} more</p>}
    </>
  );
}

function JobEvents({ id }: { id: string }) {
  const history = useMemo(() => followJobEvents(id), [id]);
  useEffect(() => history.stop, [history]);
  const list = history.list.value;
  const box = useRef<HTMLOListElement>(null);
  const stuck = useRef(true);
  useEffect(() => {
    if (box.current && stuck.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const onScroll = (event: Event) => {
    const at = event.currentTarget as HTMLElement;
    stuck.current = at.scrollHeight - at.scrollTop - at.clientHeight < 24;
  };
  return (
    <Section title="Events">
      {list.length === 0 ? (
        <p class="soft">None heard yet. Small jobs keep none.</p>
      ) : (
        <ol class="events tail" ref={box} onScroll={onScroll} tabIndex={0} aria-label="Events of this job">
          {list.map((event) => (
            <li key={`${event.id} ${event.type}`}>
              <time class="num soft">{formatClock(event.time)}</time>
              <StateLabel
                state={event.state ?? ""}
                text={
                  event.type === "progress"
                    ? `${formatCompact(event.done ?? 0)} of ${formatCompact(event.total ?? 0)} units`
                    : describeEvent(event)
                }
              />
              {event.worker && <span class="soft mono">{event.worker}</span>}
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}

/** The result if the job has finished, or on request the committed part. */
function ResultSection({ job }: { job: Job }) {
  const { response: result, problem, ask } = useResult(job);
  const save = () =>
    download(
      `${job.type}-${job.job_id}.json`,
      JSON.stringify({ job, result: result?.value }, null, 2),
      "application/json",
    );
  const some = Number(job.done) > 0;
  if (!result && !problem && job.state !== "done" && !some) return null;
  return (
    <Section
      title={result?.partial && !isEnded(job) ? `Result so far` : "Result"}
      note={result && <Button onClick={save}>Save as JSON</Button>}
    >
      {problem && <ErrorMessage subject="Result" problem={problem} onRetry={() => ask(job.state !== "done")} />}
      {result ? (
        <Outline value={result.value} label="Result" />
      ) : (
        job.state === "done" && !problem && <LoadingRows rows={4} />
      )}
      {job.state !== "done" && some && (
        <Button onClick={() => ask(true)}>{result ? "Refresh" : "Show the result so far"}</Button>
      )}
    </Section>
  );
}
