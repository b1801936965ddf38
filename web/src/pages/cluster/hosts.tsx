/** Machines with their workers, load, and differences from the rest of the cluster. */

import type { ComponentChildren } from "preact";
import { get, type Host } from "../../lib/api";
import { formatBytes, formatPercent, formatSeconds } from "../../lib/format";
import { ProgressBar } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { GpuStrip } from "./gpu-strip";
import {
  describeCards,
  describeClock,
  listCordons,
  formatLabels,
  formatLoad,
  hostState,
  listVersions,
} from "./model/hosts";
import { usePolling } from "./model/polling";
import { fleet } from "./model/state";
import { displayedState } from "./model/workers";
import { Profiles } from "./profiles";

const REFRESH_SECONDS = 5;

const UnknownValue = () => <span class="soft">not known</span>;

function UsageBar({ ratio, label, children }: { ratio: number; label: string; children: ComponentChildren }) {
  return (
    <span class="progress">
      <ProgressBar ratio={ratio} label={label} />
      <span class="num">{children}</span>
    </span>
  );
}

function HostWorkers({ host }: { host: Host }) {
  const known = new Map(fleet.value.workers.map((worker) => [worker.id, worker]));
  return (
    <ul class="host-workers">
      {host.workers.map((id) => {
        const worker = known.get(id);
        return (
          <li key={id}>
            <span class="mono long-name">{id}</span> <StateLabel state={worker ? displayedState(worker) : "lost"} />
          </li>
        );
      })}
      {listCordons(host, fleet.value.workers).map((why) => (
        <li key={why} class="bad wrap">
          {why}
        </li>
      ))}
    </ul>
  );
}

function Cpu({ host }: { host: Host }) {
  const load = formatLoad(host);
  if (!host.live || host.cpu_ratio === null) return UnknownValue();
  return (
    <>
      <UsageBar ratio={host.cpu_ratio} label={`CPU of ${host.host}`}>
        {formatPercent(host.cpu_ratio)}
      </UsageBar>
      <div class="small soft num">load {load ?? "not known"}</div>
    </>
  );
}

function Memory({ host }: { host: Host }) {
  const { memory_used_bytes: used, memory_total_bytes: total } = host;
  if (used === null || !total) return UnknownValue();
  return (
    <UsageBar ratio={used / total} label={`memory of ${host.host}`}>
      {formatBytes(used)} of {formatBytes(total)}
    </UsageBar>
  );
}

function Disks({ host }: { host: Host }) {
  if (!host.disks.length) return UnknownValue();
  return (
    <ul class="host-disks">
      {host.disks.map(({ disk, places, free_bytes: free, total_bytes: total }) => (
        <li key={disk}>
          <UsageBar ratio={total ? 1 - free / total : 0} label={`disk of ${places.join(", ")} of ${host.host}`}>
            {formatBytes(free)} free
          </UsageBar>
          <div class="small soft">{places.join(", ")}</div>
        </li>
      ))}
    </ul>
  );
}

function Network({ host }: { host: Host }) {
  const { network_receive_bytes_per_second: receives, network_transmit_bytes_per_second: sends } = host;
  if (receives === null || sends === null) return UnknownValue();
  return (
    <span class="num">
      in {formatBytes(receives)}/s
      <br />
      out {formatBytes(sends)}/s
    </span>
  );
}

function HostGpus({ host }: { host: Host }) {
  const own = fleet.value.gpus.filter((gpu) => host.workers.includes(gpu.worker));
  const others = describeCards(host).map((text) => (
    <div key={text} class="small soft">
      {text}
    </div>
  ));
  if (own.length) return <div>{[<GpuStrip key="own" gpus={own} />, ...others]}</div>;
  return others.length ? <div>{others}</div> : <span class="soft">{host.gpus.join(", ") || "none"}</span>;
}

/** Labels that the operator assigned to a host, and labels that its runners report. */
function Labels({ host }: { host: Host }) {
  const { assigned, reported } = formatLabels(host);
  return (
    <>
      {assigned && <div class="small">{assigned}</div>}
      {reported && <div class="small soft">{reported}</div>}
    </>
  );
}

function Software({ host }: { host: Host }) {
  const clock = describeClock(host);
  const versions = listVersions(host, fleet.value.status?.version);
  return (
    <dl class="host-facts small">
      {versions.map(({ name, text, isDifferent: other }) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class={`num ${other ? "bad" : ""}`}>
            {text}
            {other && `, coordinators ${fleet.value.status?.version}`}
          </dd>
        </div>
      ))}
      {!versions.length && (
        <div>
          <dt>versions</dt>
          <dd class="soft">not known</dd>
        </div>
      )}
      <div>
        <dt>clock</dt>
        <dd class={`num ${clock?.isWrong ? "bad" : clock ? "" : "soft"}`}>{clock?.text ?? "not known"}</dd>
      </div>
    </dl>
  );
}

const COLUMNS: Column<Host>[] = [
  {
    id: "host",
    title: "host",
    cell: (host) => (
      <>
        <span class="mono long-name">{host.host}</span>
        <Labels host={host} />
      </>
    ),
  },
  {
    id: "state",
    title: "state",
    cell: (host) => (
      <>
        <StateLabel state={hostState(host)} />
        {!host.live && <div class="small bad num">heard {formatSeconds(host.seen_seconds_ago)} ago</div>}
      </>
    ),
  },
  { id: "workers", title: "workers", cell: (host) => <HostWorkers host={host} /> },
  numberColumn("lanes", "busy lanes", (host) => (host.live ? `${host.busy_lanes} of ${host.lanes}` : "")),
  { id: "cpu", title: "CPU", cell: (host) => <Cpu host={host} /> },
  { id: "memory", title: "memory", cell: (host) => <Memory host={host} /> },
  { id: "disks", title: "disks", cell: (host) => <Disks host={host} /> },
  { id: "network", title: "network", cell: (host) => <Network host={host} /> },
  { id: "gpus", title: "GPUs", cell: (host) => <HostGpus host={host} /> },
  { id: "software", title: "versions and clock", cell: (host) => <Software host={host} /> },
];

export function Hosts() {
  const { value, problem } = usePolling("hosts", REFRESH_SECONDS, (control) =>
    get<{ hosts: Host[] }>("/api/hosts", {}, control),
  ).value;
  if (!value && problem) return <ErrorMessage subject="List of hosts" problem={problem} />;
  if (!value) return <LoadingRows rows={4} />;
  return (
    <div class="stack hosts">
      <div class="ages">
        <Table
          label="Hosts"
          columns={COLUMNS}
          rows={value.hosts}
          rowKey={(host) => host.host}
          empty={<EmptyMessage title="No worker has reported its host yet" />}
          class="cards host-table"
        />
      </div>
      <p class="soft small">
        A host is known by its workers; one that was lost is shown for an hour. One more machine: run{" "}
        <code>./deploy-cluster.sh invite</code> where you started the cluster, then run the printed line on the new
        machine.
      </p>
      <Profiles />
    </div>
  );
}
