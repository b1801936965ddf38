/** Charts of the numbers that units returned: by unit, as a histogram, and two columns against each other. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Job } from "../../lib/api";
import { download, formatCsv } from "../../lib/export";
import { formatInteger } from "../../lib/format";
import { Button } from "../../ui/button";
import { ErrorMessage } from "../../ui/error-message";
import { Histogram } from "../../ui/histogram";
import { useRequest } from "../../ui/request";
import { LoadingRows, Table, numberColumn, type Column } from "../../ui/table";
import { state } from "./model/state";
import {
  createBins,
  createValueTable,
  formatNumber,
  loadFinishedUnits,
  MAX_UNITS,
  RUN_COLUMNS,
  summarizeColumn,
  type Summary,
  type ValueTable,
} from "./model/values";
import { Scatter } from "./scatter";

export function Values({ job }: { job: Job }) {
  // While the job is running, values are loaded again on request.
  const refreshes = useSignal(0);
  const { value: units, problem } = useRequest(
    (signal) => loadFinishedUnits(job.job_id, signal),
    [job.job_id, job.state, refreshes.value],
  );
  const table = useMemo(() => units && createValueTable(units), [units]);
  if (problem) return <ErrorMessage subject="Values of the units" problem={problem} />;
  if (!table) return <LoadingRows rows={4} />;
  if (table.units.length < 2) return null;
  return (
    <section class="part stack" aria-label="Values by unit">
      <div class="row">
        <h2 class="grow">Values by unit</h2>
        {job.state === "running" && <Button onClick={() => (refreshes.value += 1)}>Refresh</Button>}
        <Button onClick={() => saveTable(job.job_id, table)}>Save as CSV</Button>
      </div>
      {table.units.length >= MAX_UNITS && (
        <p class="soft small">The first {formatInteger(MAX_UNITS)} finished units are shown.</p>
      )}
      <Charts table={table} />
    </section>
  );
}

function saveTable(job: string, { units, columns }: ValueTable): void {
  const names = [...columns.keys()];
  const rows = units.map((unit, row) => [unit, ...names.map((name) => columns.get(name)?.[row])]);
  download(`${job}-values.csv`, formatCsv([["unit", ...names], ...rows]), "text/csv");
}

type SummaryRow = [name: string, summary: Summary];

const COLUMNS: Column<SummaryRow>[] = [
  { id: "name", title: "column", cell: ([name]) => <span class="mono">{name}</span> },
  numberColumn("count", "units", ([, { count }]) => formatInteger(count)),
  numberColumn("mean", "mean", ([, { mean }]) => formatNumber(mean)),
  numberColumn("min", "minimum", ([, { min }]) => formatNumber(min)),
  numberColumn("median", "median", ([, { median }]) => formatNumber(median)),
  numberColumn("max", "maximum", ([, { max }]) => formatNumber(max)),
];

const UNIT = "unit";

function Charts({ table }: { table: ValueTable }) {
  const names = [...table.columns.keys()];
  const returned = names.filter((name) => !RUN_COLUMNS.some((each) => each === name));
  const y = names.find((name) => name === state.y.value) ?? returned[0] ?? RUN_COLUMNS[0];
  const x = names.find((name) => name === state.x.value) ?? UNIT;
  const column = table.columns.get(y) ?? [];
  const known = column.filter((each): each is number => each !== null);
  const summaries = names
    .map((name) => [name, summarizeColumn(table.columns.get(name) ?? [])] as const)
    .filter((row): row is SummaryRow => row[1] !== undefined);
  return (
    <>
      {!returned.length && (
        <p class="soft">
          The units returned no numbers. To return one, write JSON to the file <code>$CLUSTER_RESULT</code>.
        </p>
      )}
      <div class="row">
        <ColumnSelect label="Vertical" value={y} names={names} onChange={(name) => (state.y.value = name)} />
        <ColumnSelect
          label="Horizontal"
          value={x}
          names={[UNIT, ...names]}
          onChange={(name) => (state.x.value = name === UNIT ? "" : name)}
        />
      </div>
      <div class="charts">
        <Scatter
          title={x === UNIT ? `${y} by unit` : `${y} against ${x}`}
          xName={x}
          yName={y}
          units={table.units}
          xs={x === UNIT ? table.units : (table.columns.get(x) ?? [])}
          ys={column}
        />
        <Histogram title={`Histogram of ${y}`} bins={createBins(known)} noun="units" height={240} />
      </div>
      <Table label="Summary of the columns" columns={COLUMNS} rows={summaries} rowKey={([name]) => name} />
    </>
  );
}

interface ColumnSelectProps {
  label: string;
  value: string;
  names: readonly string[];
  onChange: (name: string) => void;
}

function ColumnSelect({ label, value, names, onChange }: ColumnSelectProps) {
  return (
    <label class="row">
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
