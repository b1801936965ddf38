/** Table of units in pages of a thousand rows, of which only visible rows are rendered. */

import { useSignal } from "@preact/signals";
import type { Job, Unit, Units, UnitState } from "../../lib/api";
import { formatCsv, download } from "../../lib/export";
import { formatInteger, formatSeconds } from "../../lib/format";
import { Button } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { LongTable } from "../../ui/long-table";
import { LoadingRows, type Column, numberColumn } from "../../ui/table";
import { showError, showToast } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { toggleStateFilter } from "./grid";
import type { ProgramUnits } from "./model/programs";
import { openUnit, state } from "./model/state";
import { describeExit, PAGE_SIZE, UNIT_STATES, loadUnits, formatValue, unitStateTitle } from "./model/units";
import { UnitStateLabel } from "./unit-state";

const COLUMNS: Column<Unit>[] = [
  {
    id: "unit",
    title: "unit",
    isNumeric: true,
    cell: ({ unit }) => (
      <Button class="link num" aria-label={`Log of unit ${unit}`} onClick={() => openUnit(unit)}>
        {formatInteger(unit)}
      </Button>
    ),
  },
  { id: "state", title: "state", cell: (unit) => <UnitStateLabel state={unit.state} /> },
  { id: "exit", title: "ended by", cell: describeExit },
  numberColumn("seconds", "time", (unit) => formatSeconds(unit.seconds)),
  numberColumn("attempts", "attempts", (unit) => (unit.attempts ? formatInteger(unit.attempts) : "")),
  { id: "worker", title: "worker", cell: (unit) => <span class="mono soft">{unit.worker}</span> },
  { id: "value", title: "value", cell: ({ value }) => <code class="clip">{formatValue(value)}</code> },
  { id: "error", title: "error", cell: ({ error }) => <span class="clip soft">{error}</span> },
];

export function UnitTable({ job, programs }: { job: Job; programs: ProgramUnits }) {
  const [stateFilter, from] = [state.units.value, state.from.value];
  const { value: answer, problem } = useRequest(
    (signal) => loadUnits(job.job_id, from, PAGE_SIZE, stateFilter, signal),
    [job.job_id, stateFilter, from, programs.changes.value],
  );
  return (
    <div class="stack">
      <TableToolbar job={job} answer={answer} />
      {problem && <ErrorMessage subject="Units" problem={problem} />}
      {answer ? <UnitRows key={`${stateFilter} ${from}`} rows={answer.units} /> : !problem && <LoadingRows rows={6} />}
    </div>
  );
}

/** First units of the previous pages. */
const previousPages: number[] = [];

function TableToolbar({ job, answer }: { job: Job; answer: Units | undefined }) {
  const busy = useSignal(false);
  const rows = answer?.units ?? [];
  const [first, last] = [rows[0]?.unit, rows.at(-1)?.unit];
  const filtered = UNIT_STATES.find((name) => name === state.units.value);
  const all = filtered ? answer?.counts[filtered] : answer?.total;
  const go = (from: number) => {
    state.from.value = from;
    state.commit();
  };
  const save = async () => {
    busy.value = true;
    await saveUnits(job.job_id, state.units.peek()).catch((error: unknown) => showError("Save as CSV", error));
    busy.value = false;
  };
  return (
    <div class="row">
      <label class="row">
        State{" "}
        <select
          value={filtered ?? ""}
          onChange={(event) => toggleStateFilter((event.currentTarget.value || state.units.peek()) as UnitState)}
        >
          <option value="">any</option>
          {UNIT_STATES.map((name) => (
            <option key={name} value={name}>
              {unitStateTitle(name)}
            </option>
          ))}
        </select>
      </label>
      <span class="small soft grow" role="status">
        {first === undefined || last === undefined
          ? answer && "No unit"
          : `Units ${formatInteger(first)} to ${formatInteger(last)}: ` +
            `${formatInteger(rows.length)} of ${formatInteger(all)}`}
      </span>
      <Button disabled={!state.from.value} onClick={() => go(previousPages.pop() ?? 0)}>
        Previous {formatInteger(PAGE_SIZE)}
      </Button>
      <Button
        disabled={rows.length < PAGE_SIZE || last === undefined || last + 1 >= (answer?.total ?? 0)}
        onClick={() => {
          previousPages.push(state.from.peek());
          go((last ?? 0) + 1);
        }}
      >
        Next {formatInteger(PAGE_SIZE)}
      </Button>
      <Button disabled={busy.value || !rows.length} onClick={() => void save()}>
        Save as CSV
      </Button>
    </div>
  );
}

/** Save all units, or those in one state, as a file. */
async function saveUnits(job: string, stateFilter: string): Promise<void> {
  const rows: Unit[] = [];
  for (let from = 0; ; ) {
    const page = await loadUnits(job, from, PAGE_SIZE, stateFilter);
    rows.push(...page.units);
    const last = page.units.at(-1);
    if (page.units.length < PAGE_SIZE || !last || last.unit + 1 >= page.total) break;
    from = last.unit + 1;
  }
  const head = ["unit", "state", "exit", "reason", "seconds", "attempts", "worker", "value", "error", "artifact"];
  const cells = rows.map((row) => [
    row.unit,
    row.state,
    row.exit,
    row.reason,
    row.seconds,
    row.attempts,
    row.worker,
    formatValue(row.value),
    row.error,
    row.artifact,
  ]);
  download(`${job}-units.csv`, formatCsv([head, ...cells]), "text/csv");
  showToast(`Saved ${formatInteger(rows.length)} units`);
}

function UnitRows({ rows }: { rows: readonly Unit[] }) {
  if (!rows.length) return <p class="soft">No unit is in this state.</p>;
  return (
    <LongTable
      label="Table of units"
      columns={COLUMNS}
      rows={rows}
      rowKey={({ unit }) => unit}
      openKey={state.unit.value}
    />
  );
}
