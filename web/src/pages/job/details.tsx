/** Facts of a job, its workers, related jobs and events. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { jobAddress } from "../../kinds";
import { asProblem, get, type Problem, type Job, type JobRelations, type RelatedJob } from "../../lib/api";
import { formatClock, formatCompact, formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { describeEvent, runSeconds } from "../../lib/fleet";
import { clusterTime, knownUntil } from "../../lib/live";
import { formatTimestamp } from "../../lib/naming";
import { Button } from "../../ui/button";
import { StateLabel } from "../../ui/state";
import { numberColumn, Table, type Column } from "../../ui/table";
import { followJobEvents } from "./model/events";
import { ErrorMessage } from "../../ui/error-message";

/** Maximum number of jobs listed per relation. */
const MAX_RELATED = 20;

function Section({ title, children, note }: { title: string; children: ComponentChildren; note?: ComponentChildren }) {
  return (
    <section class="part">
      <div class="row">
        <h2 class="grow">{title}</h2>
        {note}
      </div>
      {children}
    </section>
  );
}

export function Facts({ job }: { job: Job }) {
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
export function JobWorkers({ job }: { job: Job }) {
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
export function Relations({ job }: { job: Job }) {
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
            <a class="mono" href={jobAddress(row.job_id)}>
              {row.job_id}
            </a>
            {row.state && <StateLabel state={row.state} />}
          </li>
        ))}
      </ul>
      {count > visibleRows.length && <p class="soft small">and {formatInteger(count - visibleRows.length)} more</p>}
    </>
  );
}

export function JobEvents({ id }: { id: string }) {
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
