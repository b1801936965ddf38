/** All GPUs on one screen: their owners, and charts of the last minutes with a common time axis. */

import { get, type Gpu, type History } from "../../lib/api";
import { formatBytes, formatPercent } from "../../lib/format";
import { hasSnapshot } from "../../lib/live";
import { Chart, type Series } from "../../ui/chart";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows } from "../../ui/table";
import { GpuOwner, describeGpu } from "./gpu-strip";
import { usePolling, type PollState } from "./model/polling";
import { fleet, state } from "./model/state";
import { RangeField, REFRESH_SECONDS } from "./range";
import { ErrorMessage } from "../../ui/error-message";

export function Gpus() {
  if (!hasSnapshot.value) return <LoadingRows rows={6} />;
  const gpus = fleet.value.gpus;
  if (!gpus.length) return <NoGpus />;
  return (
    <>
      <div class="row bar-above">
        <RangeField />
      </div>
      <GpuCharts gpus={gpus} />
    </>
  );
}

function NoGpus() {
  return (
    <EmptyMessage title="No live worker has a GPU">
      <p>
        This table lists each GPU with its model, the job that holds it, and its utilization, memory, temperature and
        power over the last hour. GPUs that a job holds without using them are marked.
      </p>
      <p>To start three workers, one of them on an NVIDIA GPU, on a machine with NVIDIA's container toolkit:</p>
      <pre>./deploy-cluster.sh docker 3 1</pre>
      <p>Or, if CuPy is installed, add a GPU worker to a running cluster:</p>
      <pre>REDIS_URL=redis://HOST:6379/0 python -m gpu_worker</pre>
      <p>This table also lists the NVIDIA GPUs of runners that have the Python package nvidia-ml-py.</p>
    </EmptyMessage>
  );
}

function GpuCharts({ gpus }: { gpus: readonly Gpu[] }) {
  const range = state.range.value;
  const history = usePolling(`gpus ${range}`, REFRESH_SECONDS, (control) =>
    get<History>("/api/history", { names: "gpu.*", seconds: range, points: 300 }, control),
  );
  return (
    <div class="gpus">
      {history.value.problem && <ErrorMessage subject="history of the GPUs" problem={history.value.problem} />}
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
  minTop?: (gpu: Gpu) => number;
  isBinary?: boolean;
}[] = [
  { name: "utilization", title: "Utilization", format: (value) => formatPercent(value), minTop: () => 1 },
  {
    name: "memory",
    title: "Memory",
    format: formatBytes,
    isBinary: true,
    minTop: (gpu) => gpu.memory_total_bytes ?? 0,
  },
  { name: "temperature", title: "Temperature", format: (value) => `${Math.round(value)} °C`, minTop: () => 90 },
  { name: "power", title: "Power", format: (value) => `${Math.round(value)} W` },
];

function GpuRow({ gpu, history }: { gpu: Gpu; history: PollState<History> }) {
  return (
    <section class="gpu" aria-label={describeGpu(gpu)}>
      <header class="row">
        <h2>{describeGpu(gpu)}</h2>
        <span class="soft">{gpu.name ?? "unknown model"}</span>
        <span class="row">
          <GpuOwner gpu={gpu} />
        </span>
        {gpu.throttle_reasons?.length ? (
          <StateLabel state="warning" text={`slowed: ${gpu.throttle_reasons.join(", ")}`} />
        ) : null}
      </header>
      <div class="multiples">
        {CHARTS.map((chart) => (
          <Chart
            key={chart.name}
            title={chart.title}
            sync="cluster"
            height={96}
            isBinary={chart.isBinary ?? false}
            format={chart.format}
            minTop={chart.minTop?.(gpu) ?? 0}
            times={history.value?.times ?? []}
            series={createSeries(history.value, `gpu.${gpu.uuid}.${chart.name}`, chart.title)}
          />
        ))}
      </div>
    </section>
  );
}

/** Return one measurement of the history as a line with its range. */
export function createSeries(history: History | undefined, name: string, label: string): Series[] {
  const bins = history?.series[name];
  return bins ? [{ label, values: bins.mean, low: bins.min, high: bins.max }] : [];
}
