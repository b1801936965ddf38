/** Result of a job: values, histograms, tables, and its JSON. */

import { useEffect } from "preact/hooks";
import { KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { copyText, formatCsv, download } from "../../lib/export";
import { isEnded } from "../../lib/fleet";
import { formatCount, formatInteger } from "../../lib/format";
import { Button, TextButton } from "../../ui/button";
import { useResult } from "../../ui/request";
import { Histogram } from "../../ui/histogram";
import { formatLeaf } from "../../ui/outline";
import { LoadingRows, Table, type Column } from "../../ui/table";
import { showToast } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { convertResult, formatCell, type Cell, type Schema, type TablePart } from "./model/result-view";
import { Comparison } from "./compare";
import { fetchKinds, openKind as described, openTab } from "./model/state";
import { Values } from "./values";

export function ResultTab({ job }: { job: Job }) {
  useEffect(fetchKinds, []);
  return (
    <>
      {KINDS[job.type]?.hasPrograms && job.total !== 1 && <Values job={job} />}
      <ResultView job={job} />
      <Comparison job={job} />
    </>
  );
}

/** The most important values of a finished job. */
export function ResultSummary({ job }: { job: Job }) {
  const { response } = useResult(job);
  if (!response) return null;
  const { figures } = convertResult(response.value, KINDS[job.type]?.resultValues);
  if (!figures.length) return null;
  return (
    <section class="stack" aria-label="Result">
      <div class="row">
        <h2>Result</h2>
        <TextButton onClick={() => openTab("result")}>Complete result</TextButton>
      </div>
      <Figures figures={figures.slice(0, MAX_SUMMARY)} />
    </section>
  );
}

function Figures({ figures }: { figures: readonly [title: string, value: Cell][] }) {
  return (
    <dl class="figures">
      {figures.map(([title, each]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd title={String(each)}>{formatLeaf(formatCell(each))}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Load the result when the job has finished, or on request the partial result. */
function ResultView({ job }: { job: Job }) {
  const { response: result, problem, ask } = useResult(job);
  return (
    <section class="part stack" aria-label="Result">
      <div class="row">
        <h2 class="grow">{result?.partial && !isEnded(job) ? "Partial result" : "Result"}</h2>
        {result && <CopyButtons job={job} value={result.value} />}
      </div>
      {problem && <ErrorMessage subject="Result" problem={problem} onRetry={() => ask(job.state !== "done")} />}
      {result ? (
        <ResultSections kind={job.type} value={result.value} />
      ) : (
        job.state === "done" && !problem && <LoadingRows />
      )}
      {job.state !== "done" && <PartialResultButton job={job} again={result !== undefined} onAsk={() => ask(true)} />}
    </section>
  );
}

function PartialResultButton({ job, again, onAsk }: { job: Job; again: boolean; onAsk: () => void }) {
  if (!(Number(job.done) > 0)) return <p class="soft">No result is committed yet.</p>;
  return (
    <p>
      <Button onClick={onAsk}>{again ? "Refresh" : "Show partial result"}</Button>
    </p>
  );
}

function CopyButtons({ job, value }: { job: Job; value: unknown }) {
  const json = () => JSON.stringify(value, null, 2);
  const give = async () =>
    showToast((await copyText(json())) ? "Copied as JSON" : "The browser does not allow this page to copy");
  return (
    <>
      <Button onClick={() => void give()}>Copy as JSON</Button>
      <Button onClick={() => download(`${job.type}-${job.job_id}.json`, json(), "application/json")}>
        Save as JSON
      </Button>
    </>
  );
}

function ResultSections({ kind, value }: { kind: string; value: unknown }) {
  const schema = described.value?.result_schema as Schema | undefined;
  const { figures, histograms, tables } = convertResult(value, KINDS[kind]?.resultValues, schema);
  return (
    <>
      {figures.length > 0 && <Figures figures={figures} />}
      {histograms.map((each) => (
        <Histogram key={each.title} title={each.title} bins={each.bins} />
      ))}
      {tables.map((each) => (
        <ResultTable key={each.title} kind={kind} part={each} />
      ))}
    </>
  );
}

/** Maximum number of values in the overview. */
const MAX_SUMMARY = 12;
/** Maximum number of displayed rows; the file contains all rows. */
const MAX_ROWS = 50;
/** Maximum number of rows of tables that are open at first. */
const MAX_OPEN_ROWS = 20;

function ResultTable({ kind, part: { title, columns, rows } }: { kind: string; part: TablePart }) {
  const numeric = columns.map((_, index) => rows.every((row) => row[index] === null || typeof row[index] === "number"));
  const tableColumns: Column<readonly [number, Cell[]]>[] = columns.map((name, index) => ({
    id: `c${index}`,
    title: name,
    end: numeric[index] ?? false,
    cell: ([, row]) => <span class="num">{formatLeaf(formatCell(row[index] ?? null))}</span>,
  }));
  const save = () => download(`${kind}-${title.replaceAll(" ", "-")}.csv`, formatCsv([columns, ...rows]), "text/csv");
  return (
    <details class="part" open={rows.length <= MAX_OPEN_ROWS}>
      <summary>
        {title} <span class="soft small">{formatCount(rows.length, "row")}</span>
      </summary>
      <Table
        label={title}
        columns={tableColumns}
        rows={rows.slice(0, MAX_ROWS).map((row, index) => [index, row] as const)}
        rowKey={([index]) => String(index)}
      />
      <div class="row">
        {rows.length > MAX_ROWS && (
          <span class="soft small">
            The first {MAX_ROWS} of {formatInteger(rows.length)} rows; the file has all.
          </span>
        )}
        <span class="grow" />
        <Button onClick={save}>Save as CSV</Button>
      </div>
    </details>
  );
}
