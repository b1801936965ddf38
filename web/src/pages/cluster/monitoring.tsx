/** Health of the cluster: alerts, components, and the last hour in charts with a common time axis. */

import { useComputed } from "@preact/signals";
import { get, type Alert, type History, type Worker } from "../../lib/api";
import { formatAge, formatBytes, formatCompact, formatPercent, formatRate, formatSeconds } from "../../lib/format";
import { clusterTime, connection, lastMessageAt, hasSnapshot, knownUntil } from "../../lib/live";
import { Button } from "../../ui/button";
import { Chart, type ChartProps } from "../../ui/chart";
import { now } from "../../ui/page";
import { StateLabel } from "../../ui/state";
import { LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { activeNames, createLines, createLine } from "./model/lines";
import { usePolling } from "./model/polling";
import { RangeField, REFRESH_SECONDS } from "./range";
import { silenceAlert, silencedUntil } from "./model/alert-silences";
import { fleet, state } from "./model/state";
import { acceptsWork } from "./model/workers";
import { ErrorMessage } from "../../ui/error-message";
import { Usage } from "./usage";

export function Monitoring() {
  if (!hasSnapshot.value) return <LoadingRows rows={8} />;
  return (
    <div class="monitoring">
      <section aria-labelledby="alerts-title" class="ages">
        <h2 id="alerts-title">Alerts</h2>
        <Alerts alerts={fleet.value.alerts} />
      </section>
      <section aria-labelledby="services-title">
        <h2 id="services-title">Services</h2>
        <Components />
      </section>
      <section aria-labelledby="usage-title">
        <h2 id="usage-title">Usage</h2>
        <Usage />
      </section>
      <section aria-labelledby="history-title">
        <div class="row">
          <h2 id="history-title" class="grow">
            History
          </h2>
          <RangeField />
        </div>
        <HistoryCharts />
      </section>
    </div>
  );
}

// -- alerts ---------------------------------------------------------------------------------------------------------

function formatFigure(value: number, unit: string): string {
  if (unit === "seconds") return formatSeconds(value);
  if (unit === "ratio") return formatPercent(value);
  // Units of counts are plurals, such as jobs, workers and entries.
  return `${formatCompact(value)} ${value === 1 ? unit.replace(/ies$/, "y").replace(/s$/, "") : unit}`;
}

function SilenceButtons({ alert }: { alert: Alert }) {
  if (alert.state !== "firing") return null;
  const until = silencedUntil(alert.id);
  if (until)
    return (
      <span class="row">
        <span class="soft small">silenced in this browser for {formatSeconds((until - now.value) / 1000)}</span>
        <Button onClick={() => silenceAlert(alert.id, 0)}>Unsilence</Button>
      </span>
    );
  return (
    <Button aria-label={`Silence 1 h: ${alert.id}, in this browser`} onClick={() => silenceAlert(alert.id, 3600)}>
      Silence 1 h
    </Button>
  );
}

const ALERT_COLUMNS: Column<Alert>[] = [
  {
    id: "state",
    title: "state",
    cell: (alert) => (
      <StateLabel
        state={alert.state === "firing" ? alert.severity : "resolved"}
        text={alert.state === "firing" ? `${alert.severity}, firing` : "resolved"}
      />
    ),
  },
  { id: "rule", title: "rule", cell: (alert) => <span class="mono">{alert.rule}</span> },
  { id: "subject", title: "about", cell: (alert) => <span class="mono">{alert.subject || "the cluster"}</span> },
  numberColumn("since", "since", (alert) => formatAge(alert.since, clusterTime(knownUntil.value))),
  numberColumn("over", "over", (alert) => formatAge(alert.until, clusterTime(knownUntil.value))),
  {
    id: "value",
    title: "value, limit",
    isNumeric: true,
    cell: (alert) => (
      <span class="num">
        {formatFigure(alert.value, alert.unit)}, {formatFigure(alert.threshold, alert.unit)}
      </span>
    ),
  },
  { id: "text", title: "what to do", canWrap: true, cell: (alert) => alert.text },
  {
    id: "act",
    title: <span class="visually-hidden">acts</span>,
    isNumeric: true,
    cell: (alert) => <SilenceButtons alert={alert} />,
  },
];

/** Sort firing alerts first, otherwise keeping their order. */
function orderAlerts(alerts: readonly Alert[]): Alert[] {
  const weight = (alert: Alert) => (alert.state === "firing" ? 0 : 1);
  return [...alerts].sort((left, right) => weight(left) - weight(right) || (left.since < right.since ? 1 : -1));
}

function Alerts({ alerts }: { alerts: readonly Alert[] }) {
  if (!alerts.length) {
    return (
      <p class="soft">
        No alert is firing, and none fired within the last hour. Alerts watch queues without a worker, long waits,
        failed jobs, lost workers, late heartbeats, Redis memory and unreadable entries.
      </p>
    );
  }
  return (
    <Table
      label="Alerts"
      columns={ALERT_COLUMNS}
      rows={orderAlerts(alerts)}
      rowKey={(alert) => alert.id}
      class="cards"
    />
  );
}

// -- services -------------------------------------------------------------------------------------------------------

interface ComponentStatus {
  name: string;
  state: string;
  word: string;
  text: string;
}

/** Format as `2 live, 1 drained, 1 cordoned`, or none. */
function describeLive(workers: readonly Worker[]): string {
  const drained = workers.filter((worker) => worker.draining).length;
  const cordoned = workers.filter((worker) => worker.cordoned).length;
  const held = `${drained ? `, ${drained} drained` : ""}${cordoned ? `, ${cordoned} cordoned` : ""}`;
  return workers.length ? `${workers.length} live${held}` : "none";
}

function listComponents(): ComponentStatus[] {
  const { status, workers: all } = fleet.value;
  const live = connection.value === "live";
  const lost = all.filter((worker) => worker.state === "lost").length;
  const workers = all.filter((worker) => worker.live);
  const [cpus, gpus, runners] = ["cpu", "gpu", "runner"].map((device) =>
    workers.filter((worker) => worker.device === device),
  ) as [Worker[], Worker[], Worker[]];
  const age = `last heard ${formatAge(new Date(lastMessageAt.value).toISOString(), now.value)}`;
  return [
    {
      name: "Coordinator",
      state: live ? "up" : "down",
      word: live ? "answers" : connection.value,
      text: `version ${status?.version ?? "not known"}, ${age}`,
    },
    {
      name: "Redis",
      state: live ? "up" : "stale",
      word: live ? "answers" : "not known",
      text: "stores all jobs, leases and results",
    },
    {
      name: "CPU workers",
      state: cpus.some(acceptsWork) ? (lost ? "warning" : "up") : cpus.length ? "draining" : "down",
      word: describeLive(cpus),
      text: lost ? `${lost} lost within the hour` : `${cpus.filter((worker) => worker.state === "busy").length} busy`,
    },
    {
      name: "GPU workers",
      state: gpus.length ? "up" : "queued",
      word: describeLive(gpus),
      text: gpus.length ? "" : "jobs that require a GPU wait; jobs that only prefer a GPU run on CPUs",
    },
    {
      name: "Runners",
      state: runners.some(acceptsWork) ? "up" : runners.length ? "draining" : "queued",
      word: describeLive(runners),
      text: runners.length ? "" : "programs wait until you start a runner: ./deploy-cluster.sh local",
    },
  ];
}

const COMPONENT_COLUMNS: Column<ComponentStatus>[] = [
  { id: "name", title: "service", cell: (row) => row.name },
  { id: "state", title: "state", cell: (row) => <StateLabel state={row.state} text={row.word} /> },
  { id: "text", title: "details", canWrap: true, cell: (row) => <span class="soft">{row.text}</span> },
];

function Components() {
  return (
    <>
      <Table
        label="Services"
        columns={COMPONENT_COLUMNS}
        rows={listComponents()}
        rowKey={(row) => row.name}
        class="cards"
      />
      <p class="soft small links">
        <a href="/api/docs">API</a>
      </p>
    </>
  );
}

// -- history --------------------------------------------------------------------------------------------------------

const HISTORY_NAMES =
  "units.*,jobs.queued,jobs.running,jobs.failed,queue.*,wait.oldest,lanes.*,redis.memory," +
  "host.*.cpu,host.*.memory,host.*.receive,host.*.send";

function createCharts(history: History | undefined): Omit<ChartProps, "times">[] {
  const whole = (value: number) => formatCompact(Math.round(value * 100) / 100);
  const total = history?.series["lanes.total"];
  const busy = [
    ...createLine(history, "lanes.busy", "busy"),
    ...(total ? [{ label: "all", values: total.mean, color: 5 }] : []),
  ];
  const received = createLines(history, "host.", ".receive");
  const memory = { format: formatBytes, minTop: 1 << 20, isBinary: true };
  return [
    { title: "Busy lanes", series: busy, format: whole },
    { title: "Waiting jobs by queue", series: createLines(history, "queue.", "", false), format: whole, minTop: 4 },
    {
      title: "Oldest wait",
      series: createLine(history, "wait.oldest", "oldest wait"),
      format: formatSeconds,
      minTop: 1,
    },
    {
      title: "CPU of each host",
      series: createLines(history, "host.", ".cpu"),
      format: (of: number) => formatPercent(of),
      minTop: 1,
    },
    { title: "Memory of each host", series: createLines(history, "host.", ".memory"), ...memory },
    {
      title: "Network of each host, received",
      series: received,
      format: (value: number) => `${formatBytes(value)}/s`,
      minTop: 1024,
      isBinary: true,
    },
    { title: "Redis memory", series: createLine(history, "redis.memory", "used"), ...memory },
  ];
}

function HistoryCharts() {
  const range = state.range.value;
  const polled = usePolling(`history ${range}`, REFRESH_SECONDS, (control) =>
    get<History>("/api/history", { names: HISTORY_NAMES, seconds: range, points: 300 }, control),
  );
  const history = useComputed(() => polled.value.value).value;
  const times = history?.times ?? [];
  if (polled.value.problem && !history) return <ErrorMessage subject="history" problem={polled.value.problem} />;
  return (
    <div class="charts ages" aria-busy={!history}>
      {activeNames(history, "units.").map((kind) => (
        <Chart
          key={kind}
          title={`Units/s, ${kind}`}
          times={times}
          series={createLine(history, `units.${kind}`, kind)}
          format={(value) => formatRate(value)}
          sync="cluster"
        />
      ))}
      {createCharts(history).map((chart) => (
        <Chart key={chart.title} times={times} sync="cluster" {...chart} />
      ))}
    </div>
  );
}
