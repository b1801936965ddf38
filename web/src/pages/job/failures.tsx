/** Failures of units, grouped by their errors. */

import type { Job } from "../../lib/api";
import { formatInteger } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { Table, numberColumn, type Column } from "../../ui/table";
import { groupFailures, type FailureGroup } from "./model/failures";
import { openUnit } from "./model/state";
import { loadUnits, PAGE_SIZE } from "./model/units";

/** Maximum number of displayed units per group. */
const MAX_UNITS = 8;

const COLUMNS: Column<FailureGroup>[] = [
  numberColumn("count", "units", (group) => formatInteger(group.units.length)),
  { id: "error", title: "error", canWrap: true, cell: (group) => <span class="mono small">{group.error}</span> },
  { id: "examples", title: "logs", canWrap: true, cell: (group) => <Examples units={group.units} /> },
];

function Examples({ units }: { units: readonly number[] }) {
  return (
    <span class="row unit-links">
      {units.slice(0, MAX_UNITS).map((unit) => (
        <TextButton key={unit} onClick={() => openUnit(unit)}>
          {formatInteger(unit)}
        </TextButton>
      ))}
      {units.length > MAX_UNITS && <span class="soft">and {formatInteger(units.length - MAX_UNITS)} more</span>}
    </span>
  );
}

/** Table of the errors of failed units, most frequent first. `changes` counts the changes of unit states. */
export function Failures({ job, changes }: { job: Job; changes: number }) {
  const { value } = useRequest((signal) => loadUnits(job.job_id, 0, PAGE_SIZE, "dead", signal), [job.job_id, changes]);
  if (!value?.units.length) return null;
  const rest = (value.counts.dead ?? 0) - value.units.length;
  return (
    <>
      <Table
        label="Failures by error"
        columns={COLUMNS}
        rows={groupFailures(value.units)}
        rowKey={(row) => row.error}
      />
      {rest > 0 && <p class="soft small">The first {formatInteger(value.units.length)} failed units.</p>}
    </>
  );
}
