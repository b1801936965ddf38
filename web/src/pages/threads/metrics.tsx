/** Statistics of all replicas, counters of this replica at the playhead, and the distribution of replicas. */

import { useComputed } from "@preact/signals";
import { computeBounds } from "../../timeline/critical";
import { formatMicroseconds } from "./model/log";
import { countersAt, computeStatistics } from "./model/statistics";
import { formatCompact, formatCount, formatInteger, formatPercent, formatRate } from "../../lib/format";
import { Button } from "../../ui/button";
import { Headlines, type Headline } from "../../ui/headline";
import { Histogram } from "../../ui/histogram";
import { showError, showToast } from "../../ui/toast";
import { createBars, type Cell, type Metric } from "./model/result";
import { compareCells } from "./model/comparison";
import {
  agesClass,
  cell,
  showReplica,
  showQuantile,
  showReplicaWithin,
  example,
  loaded,
  mainTrace,
  otherCell,
  otherLoaded,
  slowPlayhead as playhead,
  slowRange as range,
  replica,
  run,
  searchText,
  startJob,
  state,
  endTime,
} from "./model/state";

const formatPlain = (value: number) => (value >= 10_000 ? formatInteger(value) : String(Number(value.toPrecision(4))));
const formatBrief = (value: number) => String(Number(value.toPrecision(3)));
const HEADLINES: [string, string, (value: number) => string][] = [
  ["speedup", "speedup", formatBrief],
  ["makespan_us", "mean makespan", (value) => formatMicroseconds(Number(value.toPrecision(3)))],
  ["utilization", "utilization", (value) => formatPercent(value, 1)],
];
const METRICS: [string, string, (value: number) => string][] = [
  ["parallelism", "parallelism", formatPlain],
  ["steals", "steals", formatPlain],
  ["threads", "threads", formatPlain],
  ["peak_live_threads", "peak live threads", formatPlain],
];

/** Format half the width of an interval with two digits. */
function formatSpread(metric: Metric, write: (value: number) => string): string {
  return metric.ci ? ` ±\u202f${write(Number(((metric.ci[1] - metric.ci[0]) / 2).toPrecision(2)))}` : "";
}

/** Describe the interval of a mean and the range of most replicas. */
function describeInterval(metric: Metric, write: (value: number) => string): string {
  if (!metric.ci) return "";
  const [low, high] = metric.ci.map(write);
  return `interval ${low} to ${high}; 90\u202f% of the replicas are in ${write(metric.p05)} to ${write(metric.p95)}`;
}

/** Return the three main results of a cell, with the compared values. */
function createHeadlines(currentCell: Cell): Headline[] {
  const comparedCell = otherCell.value;
  return HEADLINES.flatMap(([name, label, write]) => {
    const [metric, other] = [currentCell.metrics[name], comparedCell?.metrics[name]];
    if (!metric) return [];
    const suffix = [
      name === "speedup" ? `of ${currentCell.cores}` : "",
      formatSpread(metric, write).trim(),
      comparedCell && other ? `(${write(other.mean)} ${comparedCell.scheduler.replaceAll("_", " ")})` : "",
    ];
    return {
      label,
      value: write(metric.mean),
      suffix: suffix.filter(Boolean).join(" "),
      hint: describeInterval(metric, write),
    };
  });
}

interface MetricValueProps {
  name: string;
  title: string;
  format: (value: number) => string;
  cell: Cell;
}

/** A mean with its half interval, and the compared mean. */
function MetricValue({ name, title, format: write, cell: of }: MetricValueProps) {
  const metric = of.metrics[name];
  const comparedMetric = otherCell.value?.metrics[name];
  if (!metric) return null;
  const hint = describeInterval(metric, write);
  return (
    <div>
      <dt>{title}</dt>
      <dd class="num" title={hint}>
        {write(metric.mean)}
        <span class="soft">{formatSpread(metric, write)}</span>
        {comparedMetric && (
          <span class="rival">
            {" "}
            {write(comparedMetric.mean)}
            <span class="soft">{formatSpread(comparedMetric, write)}</span>
          </span>
        )}
      </dd>
    </div>
  );
}

/** Suffix for partial results, keyed by job state. */
const PARTIAL_TEXTS: Record<string, string> = {
  running: " so far",
  cancelled: " that were done when it was cancelled",
};

/** Compares two policies. */
function PolicyComparison() {
  const [currentCell, comparedCell] = [cell.value, otherCell.value];
  const verdict = currentCell && comparedCell && compareCells(currentCell, comparedCell);
  if (!verdict) return null;
  return (
    <p class="verdict" data-clear={verdict.isClear} aria-live="polite">
      {verdict.text}
    </p>
  );
}

/** Means over all replicas with their intervals. */
export function Metrics() {
  const currentCell = cell.value;
  const result = run.result.value;
  if (!currentCell || !result) return null;
  const level = formatPercent(Number(result.parameters.confidence ?? 0.95));
  const { deadlocked, capped } = currentCell.outcomes;
  return (
    <section class={`metrics ${agesClass.value}`} aria-label="Results over all replicas">
      <PolicyComparison />
      <div class="values">
        <Headlines label="Speedup, makespan, utilization" list={createHeadlines(currentCell)} />
        <dl>
          {METRICS.map(([name, title, write]) => (
            <MetricValue key={name} name={name} title={title} format={write} cell={currentCell} />
          ))}
          {currentCell.deadlock && (
            <div>
              <dt>deadlocks</dt>
              <dd class="num">{formatPercent(currentCell.deadlock.probability.mean, 1)}</dd>
            </div>
          )}
        </dl>
      </div>
      <p class="small soft">
        Means of {formatCount(currentCell.replicas, "replica")}
        {run.isPartial.value && PARTIAL_TEXTS[run.job.value?.state ?? ""]}, ± half of the {level} interval
        {otherCell.value && (
          <>
            ; second line: <b>{otherCell.value.scheduler.replaceAll("_", " ")}</b>
          </>
        )}
        .{deadlocked > 0 && ` ${formatInteger(deadlocked)} deadlocked and are not part of any mean.`}
        {capped > 0 && ` ${formatInteger(capped)} reached max threads.`}
      </p>
      {result.warnings.map((each) => (
        <p class="warn small" key={each}>
          {each}
        </p>
      ))}
    </section>
  );
}

/** Counters of this replica at the playhead or at its end. */
export function Counters() {
  const opened = loaded.value;
  const now = useComputed(() =>
    loaded.value
      ? countersAt(loaded.value.trace, loaded.value.index, playhead.value ?? loaded.value.trace.until)
      : undefined,
  ).value;
  if (!opened || !now) return null;
  const { trace, critical } = opened;
  const limits = computeBounds(critical, trace.cores);
  const speedup = critical.work / trace.until;
  const rows: [string, string, string?][] = [
    ["runtime", formatMicroseconds(playhead.value ?? trace.until)],
    ["active", formatInteger(now.active)],
    ["created", formatInteger(now.created)],
    ["max depth", String(now.depth)],
    ["rate", formatRate(now.rate, ""), "threads created per simulated second so far"],
    ["busy cores", `${now.busy} of ${trace.cores}`],
    ["ready", formatInteger(now.ready)],
    ["steals", formatInteger(now.steals)],
  ];
  const whole: [string, string, string?][] = critical.isComplete
    ? [
        [
          "work T₁, span T∞",
          `${formatMicroseconds(critical.work)}, ${formatMicroseconds(critical.span)}`,
          "work with all costs on one core; the longest way along spawns and joins",
        ],
        [
          "speedup, Brent's bounds",
          `${formatBrief(speedup)}, ${formatBrief(limits.least_speedup)} to ${formatBrief(limits.most_speedup)}`,
          "of this replica; the bounds hold for greedy schedules",
        ],
      ]
    : [["work T₁, span T∞", trace.truncated ? "the trace is cut" : "deadlocked"]];
  return (
    <dl class="counters" aria-label={`Replica ${trace.replica}`}>
      {[...rows, ...whole].map(([title, value, hint]) => (
        <div key={title} title={hint}>
          <dt>{title}</dt>
          <dd class="num">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function runSearch(search: Promise<void>): void {
  search.catch((error: unknown) => showError("Looking for a replica", error));
}

/** Histogram of makespans; a bar or a button loads a replica. */
export function Distribution() {
  const currentCell = cell.value;
  const bars = useComputed(() => (cell.value ? createBars(cell.value) : [])).value;
  if (!currentCell || !bars.length) return null;
  const here = loaded.value?.trace.until;
  const unit = (bars.at(-1)?.to ?? 0) >= 2000 ? 1000 : 1;
  const scaledBars = bars.map((bar) => ({ from: bar.from / unit, to: bar.to / unit, count: bar.count }));
  const selected =
    here === undefined || hasOtherOutcome() ? undefined : bars.findIndex((bar) => here >= bar.from && here < bar.to);
  const pickBar = (position: number) => {
    const bar = bars[position];
    if (!bar?.count) return showToast("This bar has no replicas");
    runSearch(showReplicaWithin(bar.low, bar.high));
  };
  const ready = !run.isPartial.value && state.job.value !== "";
  return (
    <section class={`distribution ${agesClass.value}`} aria-label="Distribution over replicas">
      <Histogram
        title="Makespan over replicas"
        bins={scaledBars}
        unit={unit === 1000 ? "ms" : "µs"}
        noun="replicas"
        height={130}
        selectedBin={selected}
        marks={
          currentCell.metrics.makespan_us ? [{ at: currentCell.metrics.makespan_us.mean / unit, label: "mean" }] : []
        }
        {...(ready ? { onSelect: pickBar } : {})}
      />
      {ready && <QuantileButtons cell={currentCell} />}
      {example.value && !state.job.value && <RunExampleButton />}
    </section>
  );
}

function QuantileButtons({ cell: currentCell }: { cell: Cell }) {
  const { fastest, slowest, deadlocked } = currentCell.examples;
  const quantiles: [string, number][] = [
    ["5\u202f%", 0.05],
    ["Median", 0.5],
    ["95\u202f%", 0.95],
  ];
  return (
    <>
      <div class="row picks" role="group" aria-label="Load a replica">
        {fastest && <Button onClick={() => showReplica(fastest.replica)}>Fastest</Button>}
        {quantiles.map(([title, share]) => (
          <Button key={title} onClick={() => runSearch(showQuantile(share))}>
            {title}
          </Button>
        ))}
        {slowest && <Button onClick={() => showReplica(slowest.replica)}>Slowest</Button>}
        {deadlocked && <Button onClick={() => showReplica(deadlocked.replica)}>Deadlocked</Button>}
      </div>
      <p class="small soft" aria-live="polite">
        {searchText.value ||
          `${describeReplica()} A bar or a button loads the first of its replicas; to find it, small jobs run.`}
      </p>
    </>
  );
}

/** Describe the displayed replica and the loading one. */
function describeReplica(): string {
  const trace = loaded.value?.trace;
  if (mainTrace.value.value.isLoading) return `Loading replica ${formatInteger(replica.value)}.`;
  return trace ? `Shown: replica ${formatInteger(trace.replica)}.` : "";
}

/** Offers to run the example as a job, which provides further replicas. */
function RunExampleButton() {
  const parameters = example.value?.result.parameters ?? {};
  const setParameters = Object.fromEntries(Object.entries(parameters).filter(([, each]) => each !== null));
  const run = () => startJob(setParameters).catch((error: unknown) => showError("Start", error));
  return (
    <p class="small soft">
      <Button onClick={() => void run()}>Run it here</Button> to open any of its{" "}
      {formatCount(Number(parameters.replicas), "replica")}.
    </p>
  );
}

/** Return True for a replica without a makespan, because it deadlocked or was cut. */
function hasOtherOutcome(): boolean {
  const trace = loaded.value?.trace;
  return !trace || trace.deadlocked || trace.truncated || mainTrace.value.value.isLoading;
}

/** Statistics of the marked range or the whole trace. */
export function WindowStatistics() {
  const both = useComputed(() => {
    const to = playhead.value ?? endTime.value;
    const t0 = range.value?.t0 ?? 0;
    const t1 = Math.max(t0, Math.min(range.value?.t1 ?? to, to));
    return [loaded.value, otherLoaded.value].map(
      (each) => each && computeStatistics(each.trace, each.index, t0, Math.min(t1, each.trace.until)),
    );
  }).value;
  const [statistics, comparedStatistics] = both;
  if (!statistics) return <p class="soft">Load a replica to see what its cores did.</p>;
  const pairs = <T,>(read: (each: NonNullable<typeof statistics>) => T): (T | undefined)[] => [
    read(statistics),
    ...(comparedStatistics ? [read(comparedStatistics)] : []),
  ];
  const total = statistics.t1 - statistics.t0;
  const rows: [string, (each: NonNullable<typeof statistics>) => string][] = [
    ["busy cores, mean", (each) => `${formatPlain(each.busyCores)} (${formatPercent(each.utilization, 1)})`],
    ["threads started", (each) => formatInteger(each.started)],
    ["slices", (each) => formatInteger(each.slices)],
    ["steals, attempts", (each) => `${formatInteger(each.stolen)}, ${formatInteger(each.attempts)}`],
    ["threads that waited", (each) => formatInteger(each.wait.waited)],
    ["mean wait", (each) => formatMicroseconds(each.wait.mean)],
    ["median wait", (each) => formatMicroseconds(each.wait.p50)],
    ["95th percentile of wait", (each) => formatMicroseconds(each.wait.p95)],
    ["longest wait", (each) => formatMicroseconds(each.wait.max)],
  ];
  return (
    <div class="window" id="window-statistics">
      <p class="small soft">
        {range.value ? "Marked" : "All"}: <span class="num">{formatMicroseconds(statistics.t0)}</span> to{" "}
        <span class="num">{formatMicroseconds(statistics.t1)}</span>,{" "}
        <span class="num">{formatMicroseconds(total)}</span>
      </p>
      <div class="columns">
        <table>
          {comparedStatistics && (
            <thead>
              <tr>
                <th scope="col">measure</th>
                <th scope="col" class="end">
                  {loaded.value?.trace.scheduler.replaceAll("_", " ")}
                </th>
                <th scope="col" class="end">
                  {otherLoaded.value?.trace.scheduler.replaceAll("_", " ")}
                </th>
              </tr>
            </thead>
          )}
          <tbody>
            {rows.map(([title, read]) => (
              <tr key={title}>
                <th scope="row">{title}</th>
                {pairs(read).map((text, position) => (
                  <td class="num end" key={position}>
                    {text}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        <div class="tall" tabIndex={0} role="region" aria-label="By core">
          <table>
            <thead>
              <tr>
                <th scope="col">core</th>
                <th scope="col" class="end">
                  busy
                </th>
                <th scope="col" class="end">
                  idle (stealing)
                </th>
                <th scope="col" class="end">
                  blocked
                </th>
                <th scope="col" class="end">
                  slices
                </th>
              </tr>
            </thead>
            <tbody>
              {statistics.cores.map((core, position) => (
                <tr key={position}>
                  <td class="num">{position}</td>
                  {[core.busy, core.steal, core.blocked].map((time, at) => (
                    <td class="num end" key={at}>
                      {total ? formatPercent(time / total, 1) : ""}
                    </td>
                  ))}
                  <td class="num end">{formatCompact(core.slices)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <div class="tall" tabIndex={0} role="region" aria-label="By depth">
          <table>
            <thead>
              <tr>
                <th scope="col">depth</th>
                <th scope="col" class="end">
                  threads started
                </th>
              </tr>
            </thead>
            <tbody>
              {statistics.byDepth.map((count, depth) => (
                <tr key={depth}>
                  <td class="num">{depth === 0 ? "0 (root)" : depth}</td>
                  <td class="num end">{formatInteger(count)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
    </div>
  );
}
