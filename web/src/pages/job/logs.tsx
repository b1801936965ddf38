/** The tab Logs: the logs of all units, with search, and failures grouped by their errors. */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Job, UnitExcerpt } from "../../lib/api";
import { download } from "../../lib/export";
import { isEnded } from "../../lib/fleet";
import { formatCount, formatInteger } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { markHits, splitStyles } from "../../logs/terminal";
import { STREAMS, type StreamName } from "../../logs/log";
import { Button, TextButton } from "../../ui/button";
import { ErrorMessage } from "../../ui/error-message";
import { LoadingRows } from "../../ui/table";
import { Failures } from "./failures";
import { countLines, searchLogs, type JobLogs } from "./model/logs";
import { openUnit, state } from "./model/state";
import { UNIT_STATES } from "./model/units";
import { useUnits } from "./programs";
import { UnitStateLabel } from "./unit-state";
import { UnitView } from "./unit";

/** Delay in milliseconds between a key press and the search. */
const SEARCH_DELAY_MS = 300;

export function Logs({ job }: { job: Job }) {
  const { programs, list } = useUnits(job);
  if (!list) return <LoadingRows rows={6} />;
  if (list.length === 1) return <UnitView job={job} programs={programs} list={list} unit={0} />;
  const counts = programs.counts.value;
  return (
    <>
      {(counts?.dead ?? 0) > 0 && (
        <section class="stack">
          <h2>Failures by error</h2>
          <Failures job={job} changes={programs.changes.value} />
        </section>
      )}
      <AllLogs job={job} />
      <RunningUnits list={list} />
    </>
  );
}

/** Maximum number of links to running units. */
const MAX_RUNNING = 20;

/** Links to the live logs of running units, which the search does not contain. */
function RunningUnits({ list }: { list: Uint8Array }) {
  const code = UNIT_STATES.indexOf("running");
  const running: number[] = [];
  for (let unit = list.indexOf(code); unit >= 0; unit = list.indexOf(code, unit + 1)) running.push(unit);
  if (!running.length) return null;
  return (
    <p class="row unit-links">
      Follow a running unit:
      {running.slice(0, MAX_RUNNING).map((unit) => (
        <TextButton key={unit} onClick={() => openUnit(unit)}>
          {formatInteger(unit)}
        </TextButton>
      ))}
      {running.length > MAX_RUNNING && <span class="soft">and {formatInteger(running.length - MAX_RUNNING)} more</span>}
    </p>
  );
}

function AllLogs({ job }: { job: Job }) {
  const [search, stream, unitState] = [useDelayed(state.search.value), state.stream.value, state.of.value];
  // Ended units add logs, so the search is repeated at the end of the job.
  const inputs = [job.job_id, search, stream, unitState, isEnded(job)];
  const logs = useMemo(() => searchLogs({ job: job.job_id, search, stream, state: unitState }), inputs);
  useEffect(() => {
    void logs.more();
    return logs.stop;
  }, [logs]);
  const { units, problem, isBusy } = logs.state.value;
  return (
    <section class="stack" aria-label="Logs of all units">
      <Toolbar job={job} logs={logs} />
      {problem && <ErrorMessage subject="Logs" problem={problem} onRetry={() => void logs.more()} />}
      {units.map((unit) => (
        <Excerpt key={unit.unit} unit={unit} search={search} />
      ))}
      {!units.length && isBusy && <LoadingRows rows={4} />}
      {!units.length && !isBusy && !problem && (
        <p class="soft">{search ? "No line contains this text." : "No unit has written a log yet."}</p>
      )}
      <More logs={logs} />
    </section>
  );
}

function useDelayed(text: string): string {
  const delayed = useSignal(text);
  useEffect(() => {
    const timer = setTimeout(() => (delayed.value = text), SEARCH_DELAY_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return delayed.value;
}

function Toolbar({ job, logs }: { job: Job; logs: JobLogs }) {
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => bindShortcuts({ "/": { text: "search all logs", run: () => input.current?.focus() } }), []);
  const { units, searched, isBusy, next } = logs.state.value;
  const save = () => download(`${job.job_id}.log`, formatLines(units));
  return (
    <div class="row">
      <input
        ref={input}
        type="search"
        class="grow"
        aria-label="Search all logs"
        placeholder="Search the logs of all units"
        value={state.search.value}
        maxLength={200}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => (state.search.value = event.currentTarget.value)}
      />
      <div class="segments" role="group" aria-label="Stream">
        {STREAMS.map((name: StreamName) => (
          <Button key={name} aria-pressed={state.stream.value === name} onClick={() => (state.stream.value = name)}>
            {name === "all" ? "both" : name}
          </Button>
        ))}
      </div>
      <Button aria-pressed={state.of.value === "dead"} onClick={() => (state.of.value = state.of.peek() ? "" : "dead")}>
        Failed units only
      </Button>
      <Button disabled={!units.length} onClick={save}>
        Save
      </Button>
      <span class="small soft num" role="status">
        {formatCount(countLines(units), "line")}, {formatCount(searched, "unit")} read
        {isBusy ? ", searching" : next === null ? "" : " so far"}
      </span>
    </div>
  );
}

function formatLines(units: readonly UnitExcerpt[]): string {
  return units.flatMap((unit) => unit.lines.map((line) => `${unit.unit}\t${line.stream}\t${line.text}\n`)).join("");
}

function Excerpt({ unit: { unit, state: name, lines, omitted }, search }: { unit: UnitExcerpt; search: string }) {
  return (
    <section class="excerpt" aria-label={`Log of unit ${unit}`}>
      <h3 class="row">
        <TextButton onClick={() => openUnit(unit)}>Unit {formatInteger(unit)}</TextButton>
        <UnitStateLabel state={name} />
        {omitted > 0 && (
          <span class="small soft">
            {search ? `${formatInteger(omitted)} more matches` : `the last ${lines.length} lines`}
          </span>
        )}
      </h3>
      <div class="log-lines">
        {lines.map((line, index) => (
          <p key={index} data-stream={line.stream}>
            {markHits(splitStyles(line.text), search).map(({ text, style }, part) => (
              <span key={part} class={style || undefined}>
                {text}
              </span>
            ))}
          </p>
        ))}
      </div>
    </section>
  );
}

function More({ logs }: { logs: JobLogs }) {
  const { next, isBusy } = logs.state.value;
  if (next === null) return null;
  return (
    <p>
      <Button disabled={isBusy} onClick={() => void logs.more()}>
        {isBusy ? "Searching" : "Show more"}
      </Button>
    </p>
  );
}
