/** Workers as tiles that show their jobs and problems. */

import { jobAddress } from "../../kinds";
import type { Worker } from "../../lib/api";
import { formatPercent, formatSeconds } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { ProgressBar } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { jobColor } from "./model/colors";
import { acceptsWork, describeCompilation, displayedState, sortOrder } from "./model/workers";
import { knownJobTitle } from "./model/names";
import { fleet, openTab } from "./model/state";
import { Swatch } from "./swatch";

/** Maximum number of tiles; the tab Workers lists all workers. */
const MAX_TILES = 24;
/** Maximum number of named jobs per runner. */
const MAX_JOBS = 3;
/** Maximum number of separately drawn lanes per worker; more lanes become a bar. */
const MAX_LANES = 32;

export function Tiles() {
  const all = fleet.value.workers;
  // Workers keep their order. If there are too many, workers with problems are kept.
  const kept = new Set([...all].sort((left, right) => sortOrder(left) - sortOrder(right)).slice(0, MAX_TILES));
  const rest = all.length - kept.size;
  if (!all.length)
    return (
      <p class="soft">
        No worker is live. <TextButton onClick={() => openTab("workers")}>How to start one</TextButton>
      </p>
    );
  return (
    <>
      <ul class="tiles">
        {all
          .filter((worker) => kept.has(worker))
          .map((worker) => (
            <Tile key={worker.id} worker={worker} />
          ))}
      </ul>
      {rest > 0 && <TextButton onClick={() => openTab("workers")}>All {all.length} workers</TextButton>}
    </>
  );
}

function Tile({ worker }: { worker: Worker }) {
  const { id, live, lanes, busy_lanes: busy, cpu_ratio: cpu, seen_seconds_ago: seen, job } = worker;
  const jobs = job ? [job] : [...new Set(worker.running?.map(([each]) => each))].slice(0, MAX_JOBS);
  return (
    <li data-live={live} data-worker={id}>
      <div class="row">
        <span class="mono grow">{id}</span>
        <StateLabel state={displayedState(worker)} />
      </div>
      {live ? (
        <>
          <LaneCells lanes={lanes} busy={busy} job={jobs[0] ?? ""} />
          <p class="small row">
            <span class="num">
              {busy} of {lanes}
            </span>{" "}
            <span class="soft grow">{lanes === 1 ? "lane busy" : "lanes busy"}</span>
            <span class="progress" title="CPU of its host">
              <span class="soft">CPU</span>
              <ProgressBar ratio={cpu} label={`CPU of ${id}`} />
              <span class="num">{formatPercent(cpu)}</span>
            </span>
          </p>
          <p class="small clip">
            {jobs.length ? (
              jobs.map((each) => (
                <span key={each} class="tile-job">
                  <Swatch job={each} />{" "}
                  <a class="link" href={jobAddress(each)}>
                    {knownJobTitle(each, undefined)}
                  </a>
                </span>
              ))
            ) : (
              <span class="soft">
                {describeCompilation(worker) || (acceptsWork(worker) ? "waiting for work" : "accepts no new work")}
              </span>
            )}
          </p>
        </>
      ) : (
        <p class="small">
          last heard <span class="num">{formatSeconds(seen)}</span> ago
        </p>
      )}
    </li>
  );
}

function LaneCells({ lanes, busy, job }: { lanes: number; busy: number; job: string }) {
  if (lanes > MAX_LANES) return <ProgressBar ratio={busy / lanes} label="busy lanes" />;
  const series = jobColor(job)?.series;
  const color = series && job ? `var(--series-${series})` : "var(--accent)";
  return (
    <span class="lane-cells" aria-hidden="true">
      {Array.from({ length: lanes }, (_, lane) => (
        <i key={lane} style={lane < busy ? { background: color, borderColor: color } : {}} />
      ))}
    </span>
  );
}
