/** Workers with their jobs and machines, and actions to drain them. */

import { signal } from "@preact/signals";
import { jobAddress } from "../../kinds";
import { post, type Worker } from "../../lib/api";
import { formatBytes, formatPercent, formatRate, formatSeconds } from "../../lib/format";
import { hasSnapshot } from "../../lib/live";
import { Button } from "../../ui/button";
import { askConfirmation } from "../../ui/dialog";
import { ProgressBar } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { runAction } from "../../ui/toast";
import { countWorkers, deviceTitle } from "./model/counts";
import { useDesiredWorkers } from "./model/desired-workers";
import { filterRunners } from "./model/runners";
import { knownJobTitle } from "./model/names";
import { fleet } from "./model/state";
import { describeState, displayedState } from "./model/workers";
import { Runners } from "./runners";

/** Workers whose requested drain is not confirmed yet. */
const pendingDrains = signal<ReadonlySet<string>>(new Set());

async function drainWorker(worker: Worker): Promise<void> {
  const on = !worker.draining;
  const sure =
    !on ||
    (await askConfirmation({
      title: `Drain ${worker.id}?`,
      buttonLabel: "Drain",
      text:
        `The worker finishes its leases (${worker.busy_lanes} of ${worker.lanes} lanes are busy) ` +
        `and accepts no new work until you resume it. Its jobs continue on other workers.`,
    }));
  if (!sure) return;
  pendingDrains.value = new Set([...pendingDrains.value, worker.id]);
  const successText = on ? `Draining ${worker.id}` : `Resumed ${worker.id}`;
  await runAction(
    `Drain ${worker.id}`,
    successText,
    post(`/api/workers/${encodeURIComponent(worker.id)}/drain`, { on }),
  );
  pendingDrains.value = new Set([...pendingDrains.value].filter((id) => id !== worker.id));
}

function DrainButton({ worker }: { worker: Worker }) {
  if (!worker.live) return null;
  const text = worker.draining ? "Resume" : "Drain";
  return (
    <Button
      disabled={pendingDrains.value.has(worker.id)}
      aria-label={`${text}: ${worker.id}`}
      onClick={() => void drainWorker(worker)}
    >
      {text}
    </Button>
  );
}

function Memory({ worker }: { worker: Worker }) {
  if (!worker.memory_used_bytes) return null;
  return (
    <span class="num">
      {formatBytes(worker.memory_used_bytes)}
      {worker.memory_total_bytes ? ` of ${formatBytes(worker.memory_total_bytes)}` : ""}
    </span>
  );
}

const COLUMNS: Column<Worker>[] = [
  { id: "name", title: "name", cell: (worker) => <span class="mono long-name">{worker.id}</span> },
  {
    id: "host",
    title: "host",
    cell: (worker) => worker.host && <span class="mono soft long-name">{worker.host}</span>,
  },
  { id: "device", title: "device", cell: (worker) => [worker.device, worker.cpu_level].join(" ") },
  {
    id: "state",
    title: "state",
    cell: (worker) => <StateLabel state={displayedState(worker)} text={describeState(worker)} />,
  },
  numberColumn("lanes", "busy lanes", (worker) => (worker.live ? `${worker.busy_lanes} of ${worker.lanes}` : "")),
  {
    id: "job",
    title: "job",
    cell: (worker) =>
      worker.live &&
      worker.job && (
        <a class="link" title={worker.job} href={jobAddress(worker.job)}>
          {knownJobTitle(worker.job, undefined)}
        </a>
      ),
  },
  {
    id: "cpu",
    title: "CPU of its host",
    cell: (worker) =>
      worker.live && (
        <span class="progress">
          <ProgressBar ratio={worker.cpu_ratio} label={`CPU of ${worker.id}`} />
          <span class="num">{formatPercent(worker.cpu_ratio)}</span>
        </span>
      ),
  },
  {
    id: "memory",
    title: "memory of its host",
    isNumeric: true,
    cell: (worker) => worker.live && <Memory worker={worker} />,
  },
  numberColumn("gpu", "GPUs", (worker) => worker.offer?.gpus?.length ?? worker.gpus?.length ?? 0),
  {
    id: "rate",
    title: "speed of a lane",
    cell: (worker) => (
      <span class="num">
        {Object.entries(worker.rates)
          .map(([kind, speed]) => `${kind} ${formatRate(speed)}`)
          .join(", ")}
      </span>
    ),
  },
  {
    id: "seen",
    title: "last heard",
    isNumeric: true,
    cell: (worker) => (
      <span class={`num ${worker.live ? "" : "bad"}`}>{formatSeconds(worker.seen_seconds_ago)} ago</span>
    ),
  },
  {
    id: "act",
    title: <span class="visually-hidden">acts</span>,
    isNumeric: true,
    cell: (worker) => <DrainButton worker={worker} />,
  },
];

export function Workers() {
  if (!hasSnapshot.value) return <LoadingRows rows={5} />;
  const { workers } = fleet.value;
  const runners = filterRunners(workers);
  return (
    <>
      <WorkerCounts />
      <div class="ages">
        <Table
          label="Workers"
          columns={COLUMNS}
          rows={workers}
          rowKey={(worker) => worker.id}
          empty={<NoWorkers />}
          class="cards"
        />
        {runners.length > 0 && <Runners runners={runners} />}
      </div>
    </>
  );
}

function WorkerCounts() {
  const { workers, status } = fleet.value;
  const all = countWorkers(workers, useDesiredWorkers());
  return (
    <div class="ages worker-counts">
      <dl class="figures">
        {all.map((count) => (
          <div key={count.device}>
            <dt>{deviceTitle(count.device)}</dt>
            <dd>
              {count.live} live{count.desired !== undefined && `, ${count.desired} suggested`}
            </dd>
          </div>
        ))}
        {status?.cluster_size && (
          <div>
            <dt>All workers</dt>
            <dd>{status.cluster_size} configured</dd>
          </div>
        )}
      </dl>
      <p class="soft small">
        Suggested workers for the current queue, from AUTOSCALE_MIN to AUTOSCALE_MAX
        {all.some(({ device }) => device === "gpu") && " (GPU workers: from AUTOSCALE_GPU_MIN to AUTOSCALE_GPU_MAX)"}.
        The cluster itself starts and stops no workers. Lost and stopped workers stay in the list for an hour.
      </p>
    </div>
  );
}

function NoWorkers() {
  return (
    <EmptyMessage title="No worker is live">
      <p>Jobs wait until a worker is live. To start a whole cluster on this machine:</p>
      <pre>./deploy-cluster.sh local</pre>
      <p>To add a worker to a running cluster:</p>
      <pre>REDIS_URL=redis://HOST:6379/0 python -m cpu_worker</pre>
    </EmptyMessage>
  );
}
