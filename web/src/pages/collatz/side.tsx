/** Records and measurements of the run next to the picture. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { findFastest } from "./model/inverse";
import { formatPower } from "./model/number";
import { compareRecords, completeLimit, missingRecords, type ComparedRecord, type RecordKind } from "./model/records";
import { activeRequests } from "./model/client";
import { formatCompact, formatCount, formatInteger, formatRate } from "../../lib/format";
import { Button } from "../../ui/button";
import { now } from "../../ui/page";
import { Headlines, type Headline } from "../../ui/headline";
import { totalSpeed } from "./controls";
import { computedCount, getExact, isExact, dataVersion, requestValues, findSample } from "./model/data";
import {
  activeJobs,
  isContiguous,
  jobViews,
  runPhase,
  records,
  results,
  formatRuntime,
  jobParameters,
  currentJob,
} from "./model/run";
import { showTrajectory, range, tab } from "./model/state";

const STATUS_TEXTS: Record<ComparedRecord["status"], { mark: string; text: string }> = {
  published: { mark: "\u2713", text: "in the published list" },
  range: { mark: "", text: "a record of this range only: a smaller number has a higher value" },
  beyond: { mark: "?", text: "beyond the end of the published list" },
  wrong: { mark: "\u2717", text: "contradicts the published list" },
};

function RecordRow({ record }: { record: ComparedRecord }) {
  const { mark, text } = STATUS_TEXTS[record.status];
  return (
    <tr>
      <td class="num">
        <Button class="link num" onClick={() => showTrajectory(record.n)}>
          {formatInteger(record.n)}
        </Button>
      </td>
      <td class="num end">{formatInteger(record.value)}</td>
      <td class={record.status === "wrong" ? "bad" : record.status === "published" ? "good" : ""} title={text}>
        {mark}
        <span class="visually-hidden">{text}</span>
      </td>
    </tr>
  );
}

/** Number of records displayed first, greatest ones first. */
const INITIAL_RECORDS = 8;

function RecordList({ kind, title, unit }: { kind: RecordKind; title: string; unit: string }) {
  const all = useSignal(false);
  const compared = compareRecords(kind, records.value[kind]).toReversed();
  const known = compared.filter((each) => each.status === "published").length;
  const visibleRecords = all.value ? compared : compared.slice(0, INITIAL_RECORDS);
  return (
    <section>
      <h3>
        {title} <span class="soft num">{compared.length ? `${compared.length}, ${known} published` : ""}</span>
      </h3>
      {compared.length > 0 && (
        <div class="short-list">
          <table>
            <thead class="visually-hidden">
              <tr>
                <th scope="col">n</th>
                <th scope="col">{unit}</th>
                <th scope="col">standing</th>
              </tr>
            </thead>
            <tbody>
              {visibleRecords.map((record) => (
                <RecordRow key={String(record.n)} record={record} />
              ))}
            </tbody>
          </table>
          {compared.length > INITIAL_RECORDS && (
            <Button class="link small" onClick={() => (all.value = !all.value)}>
              {all.value ? `The last ${INITIAL_RECORDS}` : `All ${compared.length}`}
            </Button>
          )}
        </div>
      )}
      <MissingRecords kind={kind} />
    </section>
  );
}

/** Published records that finished jobs should have found. */
function MissingRecords({ kind }: { kind: RecordKind }) {
  const lacking = [...results.value.values()]
    .filter((each) => each.isComplete && each.mode === "statistics")
    .flatMap((each) => missingRecords(kind, each[kind], each.range.first, each.range.end));
  if (!lacking.length) return null;
  return (
    <p class="small bad">
      Published but not found:{" "}
      {lacking
        .slice(0, 3)
        .map(({ n }) => formatInteger(n))
        .join(", ")}
    </p>
  );
}

function findFastestInRange(): { n: bigint; steps: number } | undefined {
  const requested = range.value;
  dataVersion.value;
  if (!isExact(requested) || requested.end - requested.first > 2n ** 16n)
    return findFastest(requested.first, requested.end);
  let best: { n: bigint; steps: number } | undefined;
  for (const exact of getExact(requested)) {
    for (const [index, steps] of exact.delays.entries()) {
      const n = exact.start + BigInt(index);
      if (n < requested.first || n >= requested.end || (n & (n - 1n)) === 0n) continue;
      if (!best || steps < best.steps) best = { n, steps };
    }
  }
  return best;
}

function Fastest() {
  const quickest = findFastestInRange();
  return (
    <p class="small">
      Fewest steps, powers of two excluded:{" "}
      {quickest ? (
        <>
          <Button class="link num" onClick={() => showTrajectory(quickest.n)}>
            {formatInteger(quickest.n)}
          </Button>
          , {quickest.steps} steps
        </>
      ) : (
        <span class="soft">not known</span>
      )}
    </p>
  );
}

/** Views whose numbers the page computes itself. */
const COMPUTING_VIEWS: readonly string[] = ["graph", "histogram", "residues"];

export function Records() {
  const { delay, path } = records.value;
  const any = delay.length + path.length > 0;
  useEffect(() => {
    if (!COMPUTING_VIEWS.includes(tab.value)) requestValues(range.value);
  }, [tab.value, String(range.value.first), String(range.value.end)]);
  return (
    <section class="records" aria-label="Records">
      <h2>
        Records{" "}
        {any && (
          <span class="soft small">
            {!results.value.size ? "computed in this page" : isContiguous.value ? "" : "of the searched windows"}
          </span>
        )}
      </h2>
      {!any && (
        <p class="small soft">
          Start finds the numbers with more steps, or a greater value, than all smaller ones of the range, and compares
          them with the published lists (complete to {formatCompact(completeLimit("delay"))}).
        </p>
      )}
      {any && (
        <div class="record-lists">
          <RecordList kind="delay" title="Most steps" unit="steps" />
          <RecordList kind="path" title="Highest peak" unit="peak" />
        </div>
      )}
      <Fastest />
      {any && (
        <p class="small soft">
          <span class="good">✓</span> as published; ? nothing is published to compare with; unmarked: a record of this
          range only.
        </p>
      )}
      {[...results.value.values()]
        .filter((each) => each.statement)
        .map((each) => (
          <p class="small" key={each.statement}>
            {each.statement}
          </p>
        ))}
    </section>
  );
}

/** Return the last number of the contiguously finished part of the run, if known. */
function currentNumber(): string {
  const job = currentJob.value;
  if (!job) return "";
  const { range: own, mode } = jobParameters(job);
  if (mode === "trajectory") return formatInteger(own.first);
  const at = own.first + BigInt(job.done);
  return formatInteger(at < own.end ? at : own.end - 1n);
}

/** Number of speed measurements in a sparkline, one per second. */
const HISTORY_LENGTH = 60;

function useSpeeds(): readonly (number | null)[] {
  const kept = useRef<(number | null)[]>([]);
  const running = runPhase.value === "running";
  useEffect(() => {
    kept.current = running ? [...kept.current, totalSpeed()].slice(-HISTORY_LENGTH) : [];
  }, [now.value, running]);
  return kept.current;
}

/** Format all digits if they fit next to a picture. */
function formatLarge(value: bigint): string {
  const digits = String(value);
  if (digits.length <= 15) return formatInteger(value);
  return `${digits[0]}.${digits.slice(1, 3)}·${formatPower(10, digits.length - 1)}`;
}

function numbersHeadline(): Headline {
  const tested = jobViews.value.reduce((sum, job) => sum + BigInt(job.done), 0n);
  const all = range.value.end - range.value.first;
  if (jobViews.value.length)
    return { label: "Numbers counted", value: formatCompact(tested), hint: `${formatInteger(tested)}, by the cluster` };
  dataVersion.value;
  if (isExact(range.value)) return { label: "Numbers counted", value: formatCompact(all), suffix: "in your browser" };
  const few = findSample(range.value)?.distance.length;
  return { label: "Numbers sampled", value: few ? formatCompact(few) : "\u2013", suffix: `of ${formatCompact(all)}` };
}

/** Main results: speed or count, longest and highest trajectory. */
export function Figures() {
  const speeds = useSpeeds();
  const { delay, path } = records.value;
  const [longest, highest] = [delay.at(-1), path.at(-1)];
  const first =
    runPhase.value === "running"
      ? {
          label: "Speed",
          value: totalSpeed() === null ? "\u2013" : formatCompact(totalSpeed()),
          suffix: "numbers/s",
          history: speeds,
        }
      : numbersHeadline();
  const at = (found: { n: bigint } | undefined) =>
    found ? { suffix: `at ${formatInteger(found.n)}`, onOpen: () => showTrajectory(found.n) } : {};
  return (
    <Headlines
      label="Figures"
      list={[
        first,
        { label: "Most steps", value: longest ? formatInteger(longest.value) : "\u2013", ...at(longest) },
        {
          label: "Highest peak",
          value: highest ? formatLarge(highest.value) : "\u2013",
          ...(highest ? { hint: formatInteger(highest.value) } : {}),
          ...at(highest),
        },
      ]}
    />
  );
}

export function Stats() {
  const tested = jobViews.value.reduce((sum, job) => sum + BigInt(job.done), 0n);
  const rows: [string, string, string?][] = [
    [
      "Active",
      `${activeJobs.value.length + activeRequests.value}`,
      `${formatCount(activeJobs.value.length, "job")} and ` +
        `${formatCount(activeRequests.value, "computation")} in this page`,
    ],
    ["Numbers tested", formatCompact(tested), formatInteger(tested)],
    ["In this page", formatCompact(computedCount.value), formatInteger(computedCount.value)],
    ["Current number", currentNumber() || "\u2013"],
    ["Rate", runPhase.value === "running" ? formatRate(totalSpeed()) || "\u2013" : "\u2013"],
    ["Runtime", formatRuntime()],
  ];
  return (
    <section class="stats" aria-label="Statistics">
      <h2>Statistics</h2>
      <dl>
        {rows.map(([name, value, title]) => (
          <div key={name} title={title}>
            <dt>{name}</dt>
            <dd class="num">{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** The rule of a step. */
export function Rules() {
  return (
    <details class="rules">
      <summary>The rules</summary>
      <p>
        From n, an even number goes to n / 2 and an odd one to 3n + 1. Each is one step; steps are counted until the
        first 1. Every number tried so far reaches 1.
      </p>
      <p>
        27 takes 111 steps and climbs to 9 232. A record has more steps (delay), or a greater value (path), than every
        smaller number.
      </p>
    </details>
  );
}
