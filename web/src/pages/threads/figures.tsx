/** Figures of all replicas, of this replica at the playhead, and the distribution to choose replicas from. */

import { useComputed } from "@preact/signals";
import { bounds } from "../../timeline/critical";
import { us } from "./model/log";
import { moment, statistics } from "./model/statistics";
import { compact, integer, percent, rate } from "../../lib/format";
import { Histogram } from "../../ui/histogram";
import { failed, toast } from "../../ui/toast";
import { barsOf, type Cell, type Metric } from "./model/result";
import {
  cell,
  choose,
  chooseQuantile,
  chooseWithin,
  loaded,
  main,
  otherCell,
  otherLoaded,
  calmPlayhead as playhead,
  calmRange as range,
  replica,
  run,
  searching,
  until,
} from "./model/state";

const plain = (value: number) => (value >= 10_000 ? integer(value) : String(Number(value.toPrecision(4))));
const brief = (value: number) => String(Number(value.toPrecision(3)));
const METRICS: [string, string, (value: number) => string][] = [
  ["makespan_us", "makespan", us],
  ["speedup", "speedup", plain],
  ["utilization", "utilization", (value) => percent(value, 1)],
  ["parallelism", "parallelism", plain],
  ["steals", "steals", plain],
  ["threads", "threads", plain],
  ["peak_live_threads", "most alive", plain],
];

/** Half the width of an interval, two digits of it. */
function spread(metric: Metric, write: (value: number) => string): string {
  return metric.ci ? ` ±\u202f${write(Number(((metric.ci[1] - metric.ci[0]) / 2).toPrecision(2)))}` : "";
}

function Value({
  name,
  title,
  write,
  of,
}: {
  name: string;
  title: string;
  write: (value: number) => string;
  of: Cell;
}) {
  const metric = of.metrics[name];
  const rival = otherCell.value?.metrics[name];
  if (!metric) return null;
  const hint = metric.ci
    ? `interval ${write(metric.ci[0])} to ${write(metric.ci[1])}; 90 % of the replicas are in ` +
      `${write(metric.p05)} to ${write(metric.p95)}`
    : "";
  return (
    <div>
      <dt>{title}</dt>
      <dd class="num" title={hint}>
        {write(metric.mean)}
        <span class="soft">{spread(metric, write)}</span>
        {rival && (
          <span class="rival">
            {" "}
            {write(rival.mean)}
            <span class="soft">{spread(rival, write)}</span>
          </span>
        )}
      </dd>
    </div>
  );
}

/** Means over all replicas with their intervals. */
export function Metrics() {
  const mine = cell.value;
  const result = run.result.value;
  if (!mine || !result) return null;
  const level = percent(Number(result.parameters.confidence ?? 0.95));
  const { deadlocked, capped } = mine.outcomes;
  return (
    <section class="metrics ages" aria-label="Results over all replicas">
      <dl>
        {METRICS.map(([name, title, write]) => (
          <Value key={name} name={name} title={title} write={write} of={mine} />
        ))}
        {mine.deadlock && (
          <div>
            <dt>deadlocks</dt>
            <dd class="num">{percent(mine.deadlock.probability.mean, 1)}</dd>
          </div>
        )}
      </dl>
      <p class="small soft">
        Means of {integer(mine.replicas)} replicas{run.partial.value && " so far"}, ± half of the {level} interval
        {otherCell.value && (
          <>
            ; second line: <b>{otherCell.value.scheduler.replaceAll("_", " ")}</b>
          </>
        )}
        .{deadlocked > 0 && ` ${integer(deadlocked)} deadlocked and are in no mean.`}
        {capped > 0 && ` ${integer(capped)} reached max threads.`}
      </p>
      {result.warnings.map((each) => (
        <p class="warn small" key={each}>
          {each}
        </p>
      ))}
    </section>
  );
}

/** The counters of this replica: at the playhead, or at its end. */
export function Counters() {
  const opened = loaded.value;
  const now = useComputed(() =>
    loaded.value
      ? moment(loaded.value.trace, loaded.value.index, playhead.value ?? loaded.value.trace.until)
      : undefined,
  ).value;
  if (!opened || !now) return null;
  const { trace, critical } = opened;
  const limits = bounds(critical, trace.cores);
  const speedup = critical.work / trace.until;
  const rows: [string, string, string?][] = [
    ["runtime", us(playhead.value ?? trace.until)],
    ["active", integer(now.active)],
    ["created", integer(now.created)],
    ["max depth", String(now.depth)],
    ["rate", rate(now.rate, ""), "threads created per simulated second so far"],
    ["busy cores", `${now.busy} of ${trace.cores}`],
    ["ready", integer(now.ready)],
    ["steals", integer(now.steals)],
  ];
  const whole: [string, string, string?][] = critical.whole
    ? [
        [
          "T1, T∞",
          `${us(critical.work)}, ${us(critical.span)}`,
          "work with all costs on one core; the longest way along spawns and joins",
        ],
        [
          "speedup",
          `${brief(speedup)} (Brent ≥ ${brief(limits.least_speedup)}, ≤ ${brief(limits.most_speedup)})`,
          "of this replica; Brent's bound holds for greedy schedules",
        ],
      ]
    : [["T1, T∞", trace.truncated ? "the trace is cut" : "deadlocked"]];
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

function seek(search: Promise<void>): void {
  search.catch((error: unknown) => failed("Looking for a replica", error));
}

/** Makespans of all replicas; a bar, or a button, loads one of them. */
export function Distribution() {
  const mine = cell.value;
  const bars = useComputed(() => (cell.value ? barsOf(cell.value) : [])).value;
  if (!mine || !bars.length) return null;
  const here = loaded.value?.trace.until;
  const unit = (bars.at(-1)?.to ?? 0) >= 2000 ? 1000 : 1;
  const shown = bars.map((bar) => ({ from: bar.from / unit, to: bar.to / unit, count: bar.count }));
  const selected =
    here === undefined || otherOutcome() ? undefined : bars.findIndex((bar) => here >= bar.from && here < bar.to);
  const pickBar = (place: number) => {
    const bar = bars[place];
    if (!bar?.count) return toast("No replica is in this bar");
    seek(chooseWithin(bar.low, bar.high));
  };
  const { fastest, slowest, deadlocked } = mine.examples;
  const ready = !run.partial.value;
  return (
    <section class="distribution ages" aria-label="Distribution over replicas">
      <Histogram
        title="Makespan over replicas"
        bins={shown}
        unit={unit === 1000 ? "ms" : "µs"}
        height={130}
        selected={selected}
        marks={mine.metrics.makespan_us ? [{ at: mine.metrics.makespan_us.mean / unit, label: "mean" }] : []}
        {...(ready ? { onPick: pickBar } : {})}
      />
      <div class="row picks" role="group" aria-label="Load a replica">
        <button type="button" disabled={!ready || !fastest} onClick={() => fastest && choose(fastest.replica)}>
          Fastest
        </button>
        <button type="button" disabled={!ready} onClick={() => seek(chooseQuantile(0.05))}>
          5 %
        </button>
        <button type="button" disabled={!ready} onClick={() => seek(chooseQuantile(0.5))}>
          Median
        </button>
        <button type="button" disabled={!ready} onClick={() => seek(chooseQuantile(0.95))}>
          95 %
        </button>
        <button type="button" disabled={!ready || !slowest} onClick={() => slowest && choose(slowest.replica)}>
          Slowest
        </button>
        {deadlocked && (
          <button type="button" disabled={!ready} onClick={() => choose(deadlocked.replica)}>
            Deadlocked
          </button>
        )}
      </div>
      <p class="small soft" aria-live="polite">
        {searching.value ||
          `A click on a bar loads the first of its replicas. Shown: replica ${integer(replica.value)}.`}
      </p>
    </section>
  );
}

/** A replica that deadlocked or was cut has no makespan. */
function otherOutcome(): boolean {
  const trace = loaded.value?.trace;
  return !trace || trace.deadlocked || trace.truncated || main.value.value.loading;
}

/** Statistics of the marked range, or of the whole trace. */
export function Window() {
  const both = useComputed(() => {
    const to = playhead.value ?? until.value;
    const t0 = range.value?.t0 ?? 0;
    const t1 = Math.max(t0, Math.min(range.value?.t1 ?? to, to));
    return [loaded.value, otherLoaded.value].map(
      (each) => each && statistics(each.trace, each.index, t0, Math.min(t1, each.trace.until)),
    );
  }).value;
  const [mine, rival] = both;
  if (!mine) return <p class="soft">Load a replica to see what its cores did.</p>;
  const pairs = <T,>(read: (each: NonNullable<typeof mine>) => T): (T | undefined)[] => [
    read(mine),
    ...(rival ? [read(rival)] : []),
  ];
  const total = mine.t1 - mine.t0;
  const rows: [string, (each: NonNullable<typeof mine>) => string][] = [
    ["busy cores, mean", (each) => `${plain(each.busyCores)} (${percent(each.utilization, 1)})`],
    ["threads started", (each) => integer(each.started)],
    ["slices", (each) => integer(each.slices)],
    ["steals, attempts", (each) => `${integer(each.stolen)}, ${integer(each.attempts)}`],
    ["waited at all", (each) => integer(each.wait.waited)],
    ["wait, mean", (each) => us(each.wait.mean)],
    ["wait, half below", (each) => us(each.wait.p50)],
    ["wait, 95 % below", (each) => us(each.wait.p95)],
    ["longest wait", (each) => us(each.wait.max)],
  ];
  return (
    <div class="window" id="window-statistics">
      <p class="small soft">
        {range.value ? "Marked" : "All"}: <span class="num">{us(mine.t0)}</span> to{" "}
        <span class="num">{us(mine.t1)}</span>, <span class="num">{us(total)}</span>
      </p>
      <div class="columns">
        <table>
          {rival && (
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
                {pairs(read).map((text, place) => (
                  <td class="num end" key={place}>
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
                  looks for work
                </th>
                <th scope="col" class="end">
                  held
                </th>
                <th scope="col" class="end">
                  slices
                </th>
              </tr>
            </thead>
            <tbody>
              {mine.cores.map((core, place) => (
                <tr key={place}>
                  <td class="num">{place}</td>
                  {[core.busy, core.steal, core.blocked].map((time, at) => (
                    <td class="num end" key={at}>
                      {total ? percent(time / total, 1) : ""}
                    </td>
                  ))}
                  <td class="num end">{compact(core.slices)}</td>
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
              {mine.byDepth.map((count, depth) => (
                <tr key={depth}>
                  <td class="num">{depth === 0 ? "0 (root)" : depth}</td>
                  <td class="num end">{integer(count)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
    </div>
  );
}
