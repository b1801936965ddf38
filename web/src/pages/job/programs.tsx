/** The tab Units: for programs a grid of states, one unit with its log, and a table. */

import { useEffect, useMemo } from "preact/hooks";
import { KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { formatInteger } from "../../lib/format";
import { connection } from "../../lib/live";
import { LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { JobWorkers } from "./details";
import { UnitGrid } from "./grid";
import { state } from "./model/state";
import { followUnits } from "./model/programs";
import { UnitView } from "./unit";
import { UnitTable } from "./units";

/** Follow the states of a job's units while the component is shown. */
export function useUnits(job: Job) {
  const programs = useMemo(() => followUnits(job), [job.job_id]);
  useEffect(() => programs.stop, [programs]);
  useEffect(() => programs.update(job), [job.state, job.done]);
  return { programs, list: programs.states.value };
}

export function UnitsTab({ job }: { job: Job }) {
  if (KINDS[job.type]?.hasPrograms) return <Programs job={job} />;
  return Object.keys(job.usage.workers).length ? (
    <JobWorkers job={job} />
  ) : (
    <p class="soft">No worker has finished a unit of this job yet.</p>
  );
}

function Programs({ job }: { job: Job }) {
  const { programs, list } = useUnits(job);
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
