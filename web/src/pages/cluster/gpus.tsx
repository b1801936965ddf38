/** GPUs: all on one screen, whose they are, and the last minutes of each under one clock. */

import { get, type Gpu, type History } from "../../lib/api";
import { bytes, percent } from "../../lib/format";
import { known } from "../../lib/live";
import { Chart, type Series } from "../../ui/chart";
import { State } from "../../ui/state";
import { Empty, Skeleton } from "../../ui/table";
import { usePolled, type Polled } from "./model/polled";
import { fleet, open, state } from "./model/state";
import { Range, REFRESH_SECONDS } from "./range";
import { Trouble } from "../../ui/trouble";

/** Held by a job, and idle: waste that a mean does not show. */
function idle(gpu: Gpu): boolean {
  return gpu.live && gpu.job !== null && (gpu.utilization_ratio ?? 1) < 0.01;
}

function title(gpu: Gpu): string {
  return `${gpu.worker}${gpu.index === undefined || gpu.index === null ? "" : ` #${gpu.index}`}`;
}

function Owner({ gpu }: { gpu: Gpu }) {
  if (!gpu.live) return <State of="lost" text="its worker is gone" />;
  if (!gpu.job) return <State of="idle" text="free" />;
  return (
    <>
      <button type="button" class="link mono" onClick={() => open(gpu.job ?? "")}>
        {gpu.job}
      </button>
      {idle(gpu) && <State of="stale" text="held, idle" />}
    </>
  );
}

/** 0..1; nothing where nothing is known now. */
function used(gpu: Gpu): number {
  return gpu.live ? (gpu.utilization_ratio ?? 0) : 0;
}

/** One cell a GPU. */
export function GpuStrip({ gpus }: { gpus: readonly Gpu[] }) {
  if (!gpus.length)
    return (
      <p class="soft">
        No GPU worker is live; the <a href="#tab=gpus">GPUs tab</a> says how to start one.
      </p>
    );
  return (
    <ul class="gpu-strip">
      {gpus.map((gpu) => (
        <li key={gpu.uuid}>
          <span class="fill" style={{ width: `${100 * used(gpu)}%` }} />
          <span class="small soft">{title(gpu)}</span>
          <span class="num">{(gpu.live && percent(gpu.utilization_ratio)) || "not known"}</span>
          <span class="small num">{gpu.live && bytes(gpu.memory_used_bytes)}</span>
          <span class="small">
            <Owner gpu={gpu} />
          </span>
        </li>
      ))}
    </ul>
  );
}

export function Gpus() {
  if (!known.value) return <Skeleton rows={6} />;
  const gpus = fleet.value.gpus;
  if (!gpus.length) return <NoGpus />;
  return (
    <>
      <div class="row bar-above">
        <Range />
      </div>
      <GpuCharts gpus={gpus} />
    </>
  );
}

function NoGpus() {
  return (
    <Empty title="No GPU worker is live">
      <p>
        Each GPU would have a row here: its model, the job that holds it, and utilisation, memory, temperature and power
        of the last hour, all under one cursor. A GPU that a job holds without using it is marked.
      </p>
      <p>To start one, on a machine with an NVIDIA GPU and its container toolkit (3 workers, one of them on a GPU):</p>
      <pre>./deploy-cluster.sh docker 3 1</pre>
      <p>or, where CuPy is installed, beside a running cluster:</p>
      <pre>REDIS_URL=redis://HOST:6379/0 python -m gpu_worker</pre>
    </Empty>
  );
}

function GpuCharts({ gpus }: { gpus: readonly Gpu[] }) {
  const range = state.range.value;
  const history = usePolled(`gpus ${range}`, REFRESH_SECONDS, (control) =>
    get<History>("/api/history", { names: "gpu.*", seconds: range, points: 300 }, control),
  );
  return (
    <div class="gpus">
      {history.value.problem && <Trouble what="history of the GPUs" problem={history.value.problem} />}
      {gpus.map((gpu) => (
        <GpuRow key={gpu.uuid} gpu={gpu} history={history.value} />
      ))}
    </div>
  );
}

const CHARTS: {
  name: string;
  title: string;
  format: (value: number) => string;
  least?: (gpu: Gpu) => number;
  binary?: boolean;
}[] = [
  { name: "utilization", title: "Utilisation", format: (value) => percent(value), least: () => 1 },
  { name: "memory", title: "Memory", format: bytes, binary: true, least: (gpu) => gpu.memory_total_bytes ?? 0 },
  { name: "temperature", title: "Temperature", format: (value) => `${Math.round(value)} °C`, least: () => 90 },
  { name: "power", title: "Power", format: (value) => `${Math.round(value)} W` },
];

function GpuRow({ gpu, history }: { gpu: Gpu; history: Polled<History> }) {
  return (
    <section class="gpu" aria-label={title(gpu)}>
      <header class="row">
        <h2>{title(gpu)}</h2>
        <span class="soft">{gpu.name ?? "unknown model"}</span>
        <span class="row">
          <Owner gpu={gpu} />
        </span>
        {gpu.throttle_reasons?.length ? (
          <State of="warning" text={`slowed: ${gpu.throttle_reasons.join(", ")}`} />
        ) : null}
      </header>
      <div class="multiples">
        {CHARTS.map((chart) => (
          <Chart
            key={chart.name}
            title={chart.title}
            sync="cluster"
            height={96}
            binary={chart.binary ?? false}
            format={chart.format}
            least={chart.least?.(gpu) ?? 0}
            times={history.value?.times ?? []}
            series={series(history.value, `gpu.${gpu.uuid}.${chart.name}`, chart.title)}
          />
        ))}
      </div>
    </section>
  );
}

/** One figure of the history as a line with its band. */
export function series(history: History | undefined, name: string, label: string): Series[] {
  const bins = history?.series[name];
  return bins ? [{ label, values: bins.mean, low: bins.min, high: bins.max }] : [];
}
