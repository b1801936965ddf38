/** Comparison of a job with other jobs of its kind: durations, parameters that differ, and results. */

import { useEffect, useMemo } from "preact/hooks";
import { jobAddress, KINDS } from "../../kinds";
import { get, type Job, type Jobs, type Unit } from "../../lib/api";
import { download, formatCsv } from "../../lib/export";
import { watchJob, loadResult } from "../../lib/jobs";
import { snapshot, storeJob } from "../../lib/live";
import { jobTitle, shortId } from "../../lib/naming";
import { Button } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { Table, type Column } from "../../ui/table";
import { compareJobs, type ComparedJob, type ComparisonRow } from "./model/comparison";
import { state } from "./model/state";
import { createValueTable, loadFinishedUnits } from "./model/values";

/** Maximum number of compared jobs, and of jobs to choose from. */
const MAX_COMPARED = 4;
const MAX_CHOICES = 50;

export function Comparison({ job }: { job: Job }) {
  useEffect(() => {
    get<Jobs>("/api/jobs", { type: job.type, limit: MAX_CHOICES }).then(
      ({ jobs }) => jobs.forEach(storeJob),
      () => undefined, // the banner explains why the cluster does not answer
    );
  }, [job.type]);
  const ids = state.with.value;
  const choices = [...snapshot.value.jobs.values()]
    .map((each) => each.value)
    .filter(({ job_id: id, type }) => type === job.type && id !== job.job_id && !ids.includes(id))
    .sort((left, right) => (left.created < right.created ? 1 : -1))
    .slice(0, MAX_CHOICES);
  const change = (next: readonly string[]) => {
    state.with.value = next;
    state.commit();
  };
  return (
    <section class="part stack" aria-label="Comparison">
      <div class="row">
        <h2 class="grow">Compare jobs</h2>
        {ids.length < MAX_COMPARED - 1 && choices.length > 0 && (
          <select
            aria-label="Add a job to the comparison"
            value=""
            onChange={(event) => event.currentTarget.value && change([...ids, event.currentTarget.value])}
          >
            <option value="">Add a job</option>
            {choices.map((each) => (
              <option key={each.job_id} value={each.job_id}>
                {`${jobTitle(each)}, ${shortId(each.job_id)}, ${each.state}`}
              </option>
            ))}
          </select>
        )}
        {ids.length > 0 && <Button onClick={() => change([])}>Clear</Button>}
      </div>
      {ids.length > 0 ? (
        <ComparisonTable ids={[job.job_id, ...ids]} />
      ) : (
        <p class="soft small">
          {choices.length ? "Choose another job of this kind." : "This is the only job of its kind."}
        </p>
      )}
    </section>
  );
}

/** Load the numbers that a job produced: its result, or the values of its units. */
async function loadNumbers(job: Job, signal: AbortSignal): Promise<Pick<ComparedJob, "result" | "values">> {
  if (KINDS[job.type]?.hasPrograms) {
    const units: Unit[] = await loadFinishedUnits(job.job_id, signal);
    return { result: undefined, values: createValueTable(units) };
  }
  const result = job.state === "done" ? (await loadResult(job.job_id)).result : undefined;
  return { result, values: undefined };
}

function ComparisonTable({ ids }: { ids: readonly string[] }) {
  const watched = useMemo(() => ids.map(watchJob), [ids.join()]);
  const jobs = watched.map((each) => each.value).filter((each): each is Job => each !== undefined);
  const inputs = jobs.map((job) => `${job.job_id} ${job.state}`).join();
  const { value: numbers } = useRequest((signal) => Promise.all(jobs.map((job) => loadNumbers(job, signal))), [inputs]);
  const compared = jobs.map((job, index) => ({ job, result: undefined, values: undefined, ...numbers?.[index] }));
  const rows = compareJobs(compared);
  const columns: Column<ComparisonRow>[] = [
    { id: "name", title: "property", cell: (row) => row.name },
    ...jobs.map(
      (job, index): Column<ComparisonRow> => ({
        id: `job${index}`,
        title: (
          <a href={jobAddress(job.job_id)} title={jobTitle(job)}>
            {job.name ? `${job.name} ` : ""}
            {shortId(job.job_id)}
          </a>
        ),
        isNumeric: true,
        cell: (row) => <span class={row.isEqual ? "num soft" : "num"}>{row.cells[index]}</span>,
      }),
    ),
  ];
  const save = () =>
    download(
      "comparison.csv",
      formatCsv([["property", ...jobs.map((job) => job.job_id)], ...rows.map((row) => [row.name, ...row.cells])]),
      "text/csv",
    );
  return (
    <>
      <Table label="Compared jobs" columns={columns} rows={rows} rowKey={(row) => row.name} />
      <p>
        <Button onClick={save}>Save as CSV</Button>
      </p>
    </>
  );
}
