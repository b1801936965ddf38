/** The log that users usually need first: the log of the only unit, or of the first failed unit. */

import type { Job } from "../../lib/api";
import { formatCount } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { useUnits } from "./programs";
import { Failures } from "./failures";
import { showUnits } from "./model/state";
import { UNIT_STATES } from "./model/units";
import { UnitView } from "./unit";

const DEAD = UNIT_STATES.indexOf("dead");

export function FirstLog({ job }: { job: Job }) {
  const { programs, list } = useUnits(job);
  if (!list) return null;
  const alone = list.length === 1;
  const unit = alone ? 0 : list.indexOf(DEAD);
  const dead = programs.counts.value?.dead ?? 0;
  if (unit < 0) return null;
  return (
    <>
      {!alone && (
        <section class="stack">
          <h2>
            <TextButton onClick={() => showUnits("dead")}>{formatCount(dead, "failed unit")}</TextButton>
          </h2>
          <Failures job={job} changes={programs.changes.value} />
        </section>
      )}
      <UnitView key={unit} job={job} programs={programs} list={list} unit={unit} isFirst />
    </>
  );
}
