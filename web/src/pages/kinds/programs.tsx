/** Units of a job with programs: a grid of states, one unit with its log, and a table. */

import { useEffect, useMemo } from "preact/hooks";
import type { Job } from "../../lib/api";
import { formatInteger } from "../../lib/format";
import { connection } from "../../lib/live";
import { LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { UnitGrid } from "./grid";
import { state } from "./model/state";
import { followUnits } from "./model/programs";
import { UnitView } from "./unit";
import { UnitTable } from "./units";

export function ProgramsView({ job }: { job: Job }) {
  const programs = useMemo(() => followUnits(job), [job.job_id]);
  useEffect(() => programs.stop, [programs]);
  useEffect(() => programs.update(job), [job.state, job.done]);
  const list = programs.states.value;
  // While the page is not live, its banner explains why.
  const problem = connection.value === "live" ? programs.problem.value : undefined;
  if (!list)
    return problem ? <ErrorMessage subject="States of the units" problem={problem} /> : <LoadingRows rows={6} />;
  const alone = list.length === 1;
  const unit = alone ? 0 : state.unit.value;
  return (
    <>
      {problem && <ErrorMessage subject="States of the units" problem={problem} />}
      {!alone && (
        <div class="ages">
          <UnitGrid job={job} programs={programs} list={list} />
        </div>
      )}
      {unit >= 0 && unit < list.length && <UnitView key={unit} job={job} programs={programs} list={list} unit={unit} />}
      {!alone && (
        <details class="part" open={list.length <= 100}>
          <summary>
            All units <span class="soft small">{formatInteger(list.length)}</span>
          </summary>
          <UnitTable job={job} programs={programs} />
        </details>
      )}
    </>
  );
}
