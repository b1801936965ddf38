/** Workers: what each does, how its machine is, and taking one out. */

import { signal } from "@preact/signals";
import { post, type Node } from "../../lib/api";
import { bytes, percent, rate, seconds } from "../../lib/format";
import { known } from "../../lib/live";
import { confirm } from "../../ui/dialog";
import { Bar } from "../../ui/progress";
import { State } from "../../ui/state";
import { Empty, Skeleton, Table, type Column } from "../../ui/table";
import { failed, toast } from "../../ui/toast";
import { fleet, open } from "./model/state";

/** Workers whose drain was asked for and is not seen yet. */
const asking = signal<ReadonlySet<string>>(new Set());

async function drain(node: Node): Promise<void> {
  const on = !node.draining;
  const sure =
    !on ||
    (await confirm({
      title: `Drain ${node.id}?`,
      act: "Drain",
      text:
        `It ends what it has (${node.busy_lanes} of ${node.lanes} lanes are busy) and takes nothing new ` +
        `until it is let work again. Jobs go on elsewhere.`,
    }));
  if (!sure) return;
  asking.value = new Set([...asking.value, node.id]);
  try {
    await post(`/api/nodes/${encodeURIComponent(node.id)}/drain`, { on });
    toast(on ? `${node.id} drains` : `${node.id} works again`);
  } catch (error) {
    failed(`Drain ${node.id}`, error);
  }
  asking.value = new Set([...asking.value].filter((id) => id !== node.id));
}

function Drain({ node }: { node: Node }) {
  if (!node.live) return null;
  const text = node.draining ? "Let it work" : "Drain";
  return (
    <button
      type="button"
      disabled={asking.value.has(node.id)}
      aria-label={`${text}: ${node.id}`}
      onClick={() => void drain(node)}
    >
      {text}
    </button>
  );
}

function Memory({ node }: { node: Node }) {
  if (!node.memory_used_bytes) return null;
  return (
    <span class="num">
      {bytes(node.memory_used_bytes)}
      {node.memory_total_bytes ? ` of ${bytes(node.memory_total_bytes)}` : ""}
    </span>
  );
}

/** A worker that drains says so from the moment it was asked to. */
function shownState(node: Node): string {
  return node.live && node.draining && node.state !== "drained" ? "draining" : node.state;
}

const COLUMNS: Column<Node>[] = [
  { id: "name", title: "name", cell: (node) => <span class="mono">{node.id}</span> },
  { id: "device", title: "kind", cell: (node) => node.device },
  { id: "state", title: "state", cell: (node) => <State of={shownState(node)} /> },
  {
    id: "lanes",
    title: "busy lanes",
    end: true,
    cell: (node) => <span class="num">{node.live ? `${node.busy_lanes} of ${node.lanes}` : ""}</span>,
  },
  {
    id: "job",
    title: "job",
    cell: (node) =>
      node.live &&
      node.job && (
        <button type="button" class="link mono" onClick={() => open(node.job ?? "")}>
          {node.job}
        </button>
      ),
  },
  {
    id: "cpu",
    title: "CPU of its host",
    cell: (node) =>
      node.live && (
        <span class="progress">
          <Bar ratio={node.cpu_ratio} label={`CPU of ${node.id}`} />
          <span class="num">{percent(node.cpu_ratio)}</span>
        </span>
      ),
  },
  { id: "memory", title: "memory of its host", end: true, cell: (node) => node.live && <Memory node={node} /> },
  { id: "gpu", title: "GPUs", end: true, cell: (node) => <span class="num">{node.gpus?.length ?? 0}</span> },
  {
    id: "rate",
    title: "one lane",
    cell: (node) => (
      <span class="num">
        {Object.entries(node.rates)
          .map(([kind, speed]) => `${kind} ${rate(speed)}`)
          .join(", ")}
      </span>
    ),
  },
  {
    id: "seen",
    title: "heard of",
    end: true,
    cell: (node) => <span class={`num ${node.live ? "" : "bad"}`}>{seconds(node.seen_seconds_ago)} ago</span>,
  },
  { id: "act", title: <span class="visually-hidden">acts</span>, end: true, cell: (node) => <Drain node={node} /> },
];

export function Workers() {
  if (!known.value) return <Skeleton rows={5} />;
  const { nodes, status } = fleet.value;
  const live = nodes.filter((node) => node.live).length;
  return (
    <>
      <p class="soft bar-above">
        {live} of {status?.cluster_size ?? nodes.length} live. A worker that was lost or stopped is shown for an hour.
      </p>
      <div class="ages">
        <Table
          label="Workers"
          columns={COLUMNS}
          rows={nodes}
          name={(node) => node.id}
          empty={<NoWorkers />}
          class="cards"
        />
      </div>
    </>
  );
}

function NoWorkers() {
  return (
    <Empty title="No worker lives">
      <p>Jobs wait until one does. On this machine, with everything else:</p>
      <pre>./deploy-cluster.sh local</pre>
      <p>or one more, beside a running cluster:</p>
      <pre>REDIS_URL=redis://HOST:6379/0 python -m cpu_worker</pre>
    </Empty>
  );
}
