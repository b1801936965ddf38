/** The main measurements in large type with their last ten minutes, and the others below in small type. */

import type { ComponentChildren } from "preact";
import { get, type History, type Status } from "../../lib/api";
import { oldestWait, kindSpeeds, explainMissingSpeed } from "../../lib/fleet";
import { formatInteger, formatRate, formatSeconds } from "../../lib/format";
import { knownUntil, type Fleet } from "../../lib/live";
import { TextButton } from "../../ui/button";
import { Headlines as Row, type Headline } from "../../ui/headline";
import { countWorkers, describeDesired } from "./model/counts";
import { useDesiredWorkers } from "./model/desired-workers";
import { usePolling } from "./model/polling";
import { openTab, state } from "./model/state";
import { acceptsWork, describeWorkers } from "./model/workers";

const HISTORY_SECONDS = 600;
const REFRESH_SECONDS = 5;
const HISTORY_POINTS = 60;
const HISTORY_NAMES = "units.*,jobs.running,jobs.queued";

/** Show the jobs in one state. */
function showJobsInState(name: string): void {
  state.filter.value = `state:${name}`;
  openTab("jobs");
}

export function Headlines({ fleet }: { fleet: Fleet }) {
  const history = usePolling("headlines", REFRESH_SECONDS, (control) =>
    get<History>("/api/history", { names: HISTORY_NAMES, seconds: HISTORY_SECONDS, points: HISTORY_POINTS }, control),
  ).value.value;
  const { status } = fleet;
  if (!status) return null;
  const lately = (name: string) => history?.series[name]?.mean ?? [];
  return (
    <div class="stack">
      <Row
        label="The cluster now"
        list={[...speedHeadlines(fleet, status, lately), ...loadHeadlines(fleet, status, lately)]}
      />
      <SmallFigures fleet={fleet} status={status} />
    </div>
  );
}

type RecentValues = (name: string) => readonly (number | null)[];

/** Return the two fastest kinds separately, because units of different kinds are not comparable. */
function speedHeadlines({ workers }: Fleet, status: Status, lately: RecentValues): Headline[] {
  const live = workers.filter((worker) => worker.live).length;
  const all = kindSpeeds(status, live).sort(([, left], [, right]) => right - left);
  if (!all.length) return [{ label: "Speed", value: "-", suffix: explainMissingSpeed(status, live), tone: "soft" }];
  return all.slice(0, 2).map(([kind, speed]) => ({
    label: all.length > 1 ? `Speed, ${kind}` : "Speed",
    value: formatRate(speed),
    suffix: all.length > 1 ? "units" : kind,
    hint: `Committed units of ${kind} per second`,
    history: lately(`units.${kind}`),
  }));
}

/** Return a text about waiting jobs that have already started. */
function describeStarted(count: number): string {
  if (count === 1) return "1 of them has started and waits for its turn";
  return count > 0 ? `${formatInteger(count)} of them have started and wait for their turn` : "";
}

function loadHeadlines({ workers, queues }: Fleet, status: Status, lately: RecentValues): Headline[] {
  const live = workers.filter((worker) => worker.live);
  const lanes = live.reduce((sum, worker) => sum + worker.lanes, 0);
  const used = live.reduce((sum, worker) => sum + worker.busy_lanes, 0);
  const wait = oldestWait(queues, knownUntil.value);
  const queued = status.jobs.queued ?? 0;
  const waiting = Math.max(
    queued,
    queues.reduce((sum, queue) => sum + queue.jobs, 0),
  );
  return [
    {
      label: "Running",
      value: formatInteger(status.jobs.running ?? 0),
      suffix: `${used} of ${lanes} ${lanes === 1 ? "lane" : "lanes"} busy`,
      history: lately("jobs.running"),
      onOpen: () => showJobsInState("running"),
    },
    {
      label: "Waiting",
      value: formatInteger(waiting),
      suffix: wait ? `oldest ${formatSeconds(wait)}` : "",
      hint: describeStarted(waiting - queued),
      history: lately("jobs.queued"),
      onOpen: () => showJobsInState("queued"),
      ...(waiting && !live.some(acceptsWork) ? { tone: "bad" as const } : {}),
    },
  ];
}

function SmallFigures({ fleet: { workers }, status }: { fleet: Fleet; status: Status }) {
  const desired = describeDesired(countWorkers(workers, useDesiredWorkers()));
  const figures: [string, ComponentChildren][] = [
    ["Workers", describeWorkers(workers, status.cluster_size)],
    ["Suggested workers", desired],
    ["Failed", status.jobs.failed ? formatInteger(status.jobs.failed) : ""],
    ["Done", formatInteger(status.jobs.done ?? 0)],
  ];
  return (
    <dl class="others ages">
      {figures
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class={`num ${name === "Failed" ? "bad" : ""}`}>
              {name === "Failed" || name === "Done" ? (
                <TextButton onClick={() => showJobsInState(name.toLowerCase())}>{value}</TextButton>
              ) : (
                value
              )}
            </dd>
          </div>
        ))}
    </dl>
  );
}
