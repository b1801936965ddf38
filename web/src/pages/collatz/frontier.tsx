/** Searches of mode frontier: form, tree of classes, certificate and expected times. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { copyText } from "../../lib/export";
import { isEnded } from "../../lib/fleet";
import { formatCompact, formatInteger, formatRate, formatSeconds } from "../../lib/format";
import { jobProblem, loadResult, submitJob, watchJob } from "../../lib/jobs";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { Canvas, Figure } from "../../ui/figure";
import { JobName } from "../../ui/job-name";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { showError, showToast } from "../../ui/toast";
import type { Job } from "../../lib/api";
import { clusterState, knownJobs } from "./model/cluster-state";
import * as frontier from "./model/frontier";
import { formatPower } from "./model/number";
import { setFont } from "./model/plot";
import { usePicture } from "./model/savable-pictures";
import { state } from "./model/state";

/** Interval in milliseconds between reads of a running job's certificate. */
const READ_MS = 5000;
const YEAR_SECONDS = 31_557_600;
/** N of the table of expected times. */
const EXPECTED_BITS = [40, 48, 56, 60, 64, 68, 71, 76, 82];

function formatTime(seconds: number): string {
  return seconds < 2 * YEAR_SECONDS ? formatSeconds(seconds) : `${formatCompact(seconds / YEAR_SECONDS)} years`;
}

function frontierJobs(): Job[] {
  return knownJobs.value
    .filter((job) => frontier.bitsOf(job))
    .sort((one, other) => (one.created < other.created ? 1 : -1));
}

function describeTime(bits: number): string {
  const pace = frontier.frontierPace(frontierJobs());
  if (!clusterState.value.workers) return "No worker is live, so the job would wait.";
  if (!pace) return "The time is not known, because no search has run here yet.";
  return `About ${formatTime(frontier.secondsTo(bits, pace))} on this cluster.`;
}

function Form() {
  const bits = useSignal("44");
  const name = useSignal("");
  const isSending = useSignal(false);
  const value = Number(bits.value);
  const isValid = Number.isInteger(value) && value >= frontier.MIN_BITS && value <= frontier.MAX_BITS;
  const submit = async (event: Event) => {
    event.preventDefault();
    isSending.value = true;
    try {
      const options = name.value.trim() ? { name: name.value.trim() } : {};
      state.frontier.value = await submitJob("collatz", { mode: "frontier", bits: value }, options);
      state.commit();
    } catch (error) {
      showError("The search was not started", error);
    }
    isSending.value = false;
  };
  return (
    <form class="row" aria-label="Search" onSubmit={(event) => void submit(event)}>
      <label class="inline">
        N
        <input
          class="num short"
          type="number"
          min={frontier.MIN_BITS}
          max={frontier.MAX_BITS}
          value={bits.value}
          aria-invalid={!isValid}
          aria-describedby="bits-note"
          onInput={(event) => (bits.value = event.currentTarget.value)}
        />
      </label>
      <label class="inline">
        name
        <input maxLength={80} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </label>
      <Button type="submit" class="primary" disabled={!isValid || isSending.value}>
        Verify all n &lt; {isValid ? formatPower(2, value) : "2^N"}
      </Button>
      <span id="bits-note" class={isValid ? "small soft" : "small bad"} role="status">
        {isValid ? describeTime(value) : `N must be an integer from ${frontier.MIN_BITS} to ${frontier.MAX_BITS}.`}
      </span>
    </form>
  );
}

/** Return the job's result, which is read again while the job is running. */
function useResult(job: Job | undefined): frontier.FrontierResult | undefined {
  const read = useSignal<{ id: string; result: frontier.FrontierResult } | undefined>(undefined);
  const id = job?.job_id ?? "";
  const isRunning = !!job && !isEnded(job);
  useEffect(() => {
    if (!id) return undefined;
    const load = () =>
      loadResult<frontier.FrontierResult | null>(id, job?.state !== "done").then(
        ({ result }) => {
          if (result) read.value = { id, result };
        },
        () => undefined, // nothing is stored yet
      );
    void load();
    const timer = isRunning ? setInterval(() => void load(), READ_MS) : 0;
    return () => clearInterval(timer);
  }, [id, job?.state]);
  return read.value?.id === id ? read.value.result : undefined;
}

/** Size of the labels at the left, and of the bars at the bottom. */
const [LABELS, BARS] = [60, 90];

/**
 * Draw each second level of the tree as a row. A class is as wide as its share of all classes, and filled as far as it
 * is proven. Below, draw the survivors of each block.
 */
function draw(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  classes: frontier.Classes,
  rows: readonly frontier.Row[],
): void {
  setFont(context);
  context.textBaseline = "bottom";
  context.textAlign = "right";
  const [wide, tall] = [width - LABELS, (2 * (height - BARS)) / classes.depth];
  const label = (text: string, bottom: number) => {
    context.fillStyle = token("ink-soft");
    context.fillText(text, LABELS - 6, bottom);
  };
  for (let level = 2; level <= classes.depth; level += 2) {
    const bottom = (level / 2) * tall;
    label(`${level} bits`, bottom);
    for (const { first, count, done } of frontier.groupClasses(classes, level, wide)) {
      const x = (index: number) => LABELS + Math.round((index / classes.shares.length) * wide);
      const size = Math.max(1, x(first + count) - x(first));
      const box = (share: number) => context.fillRect(x(first), bottom, size - (size > 3 ? 1 : 0), (2 - tall) * share);
      context.fillStyle = token("line");
      box(1);
      context.fillStyle = token("good");
      box(done / count);
    }
  }
  const most = Math.max(1, ...rows.map((row) => Number(row[1])));
  label("survivors", height);
  label(formatCompact(most), height - BARS + 30);
  context.fillStyle = token("series-1");
  const bar = wide / frontier.BLOCKS;
  for (const [block, survivors] of rows)
    context.fillRect(LABELS + block * bar, height, Math.max(1, bar), ((20 - BARS) * Number(survivors)) / most);
}

function Picture({ job, rows }: { job: Job; rows: readonly frontier.Row[] }) {
  const bits = frontier.bitsOf(job);
  const classes = useMemo(() => frontier.readClasses(bits, Number(job.total), rows), [bits, job.total, rows]);
  const done = classes.shares.reduce((sum, share) => sum + share, 0);
  const words =
    `${formatInteger(Math.round(done))} of ${formatInteger(classes.numbers.length)} classes of numbers with the same ` +
    `lowest ${classes.depth} bits are proven`;
  const canvas = usePicture("frontier", `Collatz: classes below 2^${bits}`, `${words}.`, (context, width, height) =>
    draw(context, width, height, classes, rows),
  );
  return (
    <Figure
      summary={`${words}.`}
      getTable={() => ({
        head: ["block", "survivors", "passes", "checksum"],
        rows: rows.map(([block, survivors, passes, checksum]) => [
          block,
          formatInteger(survivors),
          formatInteger(passes),
          checksum,
        ]),
      })}
    >
      <div class="plot-space">
        <Canvas canvasRef={canvas} summary={`${words}.`} class="fill" />
      </div>
      <p class="small soft">
        {words}. Each row divides the classes above it by two more bits, and rules drop some parts. The filled share of
        a box is proven; the last blocks may be incomplete while the job is running. Below: survivors of each of the
        4,096 blocks of classes.
      </p>
    </Figure>
  );
}

function Facts({ title, facts }: { title: string; facts: [string, string][] }) {
  return (
    <section class="stats" aria-label={title}>
      <h3>{title}</h3>
      <dl>
        {facts.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="num">{text}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Totals({ job, result }: { job: Job; result: frontier.FrontierResult }) {
  const speed = job.seconds ? (2 ** frontier.bitsOf(job) * job.progress) / job.seconds : null;
  return (
    <Facts
      title="Totals"
      facts={[
        ["Survivors", formatInteger(result.survivors)],
        ["Passes", formatInteger(result.block_steps)],
        ["Checksum", result.checksum],
        ["Largest value", `${result.largest_bits} bits`],
        ["Speed", formatRate(speed, "numbers") || "\u2013"],
      ]}
    />
  );
}

function Certificate({ job }: { job: Job }) {
  const command = `cluster verify-certificate ${job.job_id}`;
  const copy = async () =>
    showToast((await copyText(command)) ? "Copied the command" : "The browser does not allow this page to copy");
  return (
    <section class="stack" aria-label="Certificate">
      <h3>Certificate</h3>
      <p class="small">
        This command recomputes 40 random blocks on your machine, and compares them. Add <code>--all</code> for all
        blocks.
      </p>
      <div class="row">
        <code>{command}</code>
        <Button onClick={() => void copy()}>Copy</Button>
      </div>
      <p class="small">
        <a href={`/api/jobs/${job.job_id}/result`} download={`${job.job_id}.json`}>
          Download the result
        </a>{" "}
        with the certificate. The command also accepts the file.
      </p>
    </section>
  );
}

function ExpectedTimes() {
  const pace = frontier.frontierPace(frontierJobs());
  if (!pace || !clusterState.value.workers) return null;
  return (
    <>
      <Facts
        title="Expected times on this cluster"
        facts={EXPECTED_BITS.map((bits) => [
          `all n < ${formatPower(2, bits)}`,
          formatTime(frontier.secondsTo(bits, pace)),
        ])}
      />
      <p class="small soft">
        Derived from job {pace.job.slice(0, 8)}, N = {pace.bits}. Each further bit takes 1.9 times as long: it doubles
        the numbers, and about 5 % fewer of them survive.
      </p>
    </>
  );
}

const NO_ROWS: frontier.Row[] = [];

function Run({ id }: { id: string }) {
  const job = watchJob(id).value;
  const result = useResult(job);
  const problem = jobProblem(id).value;
  if (!job) return <p class="small bad">{problem ? `Job ${id} is not shown: ${problem.message}` : ""}</p>;
  return (
    <>
      <div class="row">
        <StateLabel state={job.state} />
        <a href={`/job.html#job=${job.job_id}`}>
          <JobName job={job} />
        </a>
        <Progress job={job} hasButtons />
      </div>
      {(job.waiting_because || job.error) && <p class="small soft">{job.error ?? job.waiting_because}</p>}
      {result?.verified && <p class="good">{result.statement}</p>}
      <Picture job={job} rows={result?.certificate ?? NO_ROWS} />
      {result && <Totals job={job} result={result} />}
      {result?.verified && <Certificate job={job} />}
    </>
  );
}

/** The view: a form, and the search in the URL or else the newest one. */
export function FrontierView() {
  const id = state.frontier.value || frontierJobs()[0]?.job_id;
  return (
    <div class="stack">
      <Form />
      {id ? (
        <Run id={id} />
      ) : (
        <div class="empty">
          <h3>No search yet</h3>
          <p>A search proves that all numbers below 2^N reach 1. It drops whole classes of numbers at once.</p>
        </div>
      )}
      <ExpectedTimes />
    </div>
  );
}
