/** The main measurements in large type with their last ten minutes, and the others below in small type. */

import type { ComponentChildren } from "preact";
import { get, type History, type Status } from "../../lib/api";
import { oldestWait, kindSpeeds, explainMissingSpeed } from "../../lib/fleet";
import { formatInteger, formatRate, formatSeconds } from "../../lib/format";
import { knownUntil, type Fleet } from "../../lib/live";
import { TextButton } from "../../ui/button";
import { Headlines as Row, type Headline } from "../../ui/headline";
import { counts, desiredText } from "./model/counts";
import { useDesired } from "./model/desired";
import { usePolled } from "./model/polled";
import { go, state } from "./model/state";
import { takesWork, workersText } from "./model/workers";

const SECONDS = 600;
const REFRESH_SECONDS = 5;
const POINTS = 60;
const NAMES = "units.*,jobs.running,jobs.queued";

/** Show the jobs in one state. */
function list(name: string): void {
  state.filter.value = `state:${name}`;
  go("jobs");
}

export function Headlines({ fleet }: { fleet: Fleet }) {
  const history = usePolled("headlines", REFRESH_SECONDS, (control) =>
    get<History>("/api/history", { names: NAMES, seconds: SECONDS, points: POINTS }, control),
  ).value.value;
  const { status } = fleet;
  if (!status) return null;
  const lately = (name: string) => history?.series[name]?.mean ?? [];
  return (
    <div class="stack">
      <Row label="The cluster now" list={[...speeds(fleet, status, lately), ...loads(fleet, status, lately)]} />
      <Others fleet={fleet} status={status} />
    </div>
  );
}

type Lately = (name: string) => readonly (number | null)[];

/** Return the two fastest kinds separately, because units of different kinds are not comparable. */
function speeds({ workers }: Fleet, status: Status, lately: Lately): Headline[] {
  const live = workers.filter((worker) => worker.live).length;
  const all = kindSpeeds(status, live).sort(([, left], [, right]) => right - left);
  if (!all.length) return [{ label: "Speed", value: "0/s", suffix: explainMissingSpeed(status, live), tone: "soft" }];
  return all.slice(0, 2).map(([kind, speed]) => ({
    label: all.length > 1 ? `Speed, ${kind}` : "Speed",
    value: formatRate(speed),
    suffix: all.length > 1 ? "units" : kind,
    hint: `Committed units of ${kind} per second`,
    history: lately(`units.${kind}`),
  }));
}

/** Return a text about waiting jobs that have already started. */
function begunText(count: number): string {
  if (count === 1) return "1 of them has started and waits for its turn";
  return count > 0 ? `${formatInteger(count)} of them have started and wait for their turn` : "";
}

function loads({ workers, queues }: Fleet, status: Status, lately: Lately): Headline[] {
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
      onOpen: () => list("running"),
    },
    {
      label: "Waiting",
      value: formatInteger(waiting),
      suffix: wait ? `oldest ${formatSeconds(wait)}` : "",
      hint: begunText(waiting - queued),
      history: lately("jobs.queued"),
      onOpen: () => list("queued"),
      ...(waiting && !live.some(takesWork) ? { tone: "bad" as const } : {}),
    },
  ];
}

function Others({ fleet: { workers }, status }: { fleet: Fleet; status: Status }) {
  const desired = desiredText(counts(workers, useDesired()));
  const figures: [string, ComponentChildren][] = [
    ["Workers", workersText(workers, status.cluster_size)],
    ["Desired", desired],
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
                <TextButton onClick={() => list(name.toLowerCase())}>{value}</TextButton>
              ) : (
                value
              )}
            </dd>
          </div>
        ))}
    </dl>
  );
}
