/** One unit: its exit, value, outputs and log. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Job, Unit, UnitState } from "../../lib/api";
import { download } from "../../lib/export";
import { formatBytes, formatInteger, formatSeconds } from "../../lib/format";
import { Button } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { now } from "../../ui/page";
import { LoadingRows } from "../../ui/table";
import { showError } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { select } from "./grid";
import { LogView } from "../../logs/view";
import { stateAt, type Programs } from "./model/programs";
import { content, ending, isKept, outputs, valueText, type Output } from "./model/units";
import { UnitWord } from "./sign";

interface Props {
  job: Job;
  programs: Programs;
  list: Uint8Array;
  unit: number;
}

export function UnitView({ job, programs, list, unit }: Props) {
  useEffect(() => programs.ask(unit), [programs.changes.value]);
  const row = programs.row(unit);
  const name = stateAt(list, unit);
  const turn = useTurn(name);
  const alone = list.length === 1;
  return (
    <section class="part stack" aria-label={`Unit ${unit}`}>
      <div class="row">
        {!alone && <h2>Unit {formatInteger(unit)}</h2>}
        <UnitWord of={name} />
        {row && <Ending unit={row} />}
        <span class="grow" />
        {!alone && <Neighbours unit={unit} total={list.length} />}
      </div>
      {row?.error && row.error !== `exit code ${row.exit}` && (
        <p class={name === "dead" ? "trouble" : "soft"}>{row.error}</p>
      )}
      {row && !isKept(row.value) && valueText(row.value) && (
        <p>
          <span class="soft">value</span> <code>{valueText(row.value)}</code>
        </p>
      )}
      {row?.artifact && <Outputs key={row.artifact} job={job} artifact={row.artifact} unit={unit} />}
      <LogView job={job.job_id} unit={unit} running={name === "running"} key={turn} />
    </section>
  );
}

/**
 * Changes when the log must be opened again. A followed log detects the program's exit itself, so the reader keeps the
 * position.
 */
function useTurn(name: UnitState): number {
  const turn = useRef({ name, count: 0 });
  const { name: before, count } = turn.current;
  if (name !== before) turn.current = { name, count: before === "running" ? count : count + 1 };
  return turn.current.count;
}

function Ending({ unit }: { unit: Unit }) {
  const told = useMemo(() => Date.now(), [unit]);
  const since = unit.state === "running" ? Math.max(0, now.value - told) / 1000 : 0;
  const facts = [
    ending(unit),
    unit.seconds === null ? "" : formatSeconds(unit.seconds + since),
    unit.attempts && unit.attempts > 1 ? `attempt ${unit.attempts}` : "",
    unit.worker ? `on ${unit.worker}` : "",
  ];
  return <span class="mono soft">{facts.filter(Boolean).join(", ")}</span>;
}

function Neighbours({ unit, total }: { unit: number; total: number }) {
  return (
    <>
      <Button disabled={unit === 0} onClick={() => select(unit - 1)}>
        Previous
      </Button>
      <Button disabled={unit === total - 1} onClick={() => select(unit + 1)}>
        Next
      </Button>
      <Button class="plain" onClick={() => select(-1)}>
        Close unit
      </Button>
    </>
  );
}

/** Maximum number of listed files; a shell command downloads all. */
const MOST_FILES = 20;

function Outputs({ job, artifact, unit }: { job: Job; artifact: string; unit: number }) {
  const { value: files, problem } = useRequest(() => outputs(artifact, unit));
  if (problem) return <ErrorMessage subject="Outputs" problem={problem} />;
  if (!files) return <LoadingRows rows={1} />;
  if (!files.length) return null;
  const rest = files.length - MOST_FILES;
  return (
    <div class="outputs">
      <h3>Outputs</h3>
      <ul>
        {files.slice(0, MOST_FILES).map((file) => (
          <li key={file.path}>
            <Button class="link mono" onClick={() => void save(file)}>
              {file.path}
            </Button>{" "}
            <span class="num soft">{formatBytes(file.bytes)}</span>
          </li>
        ))}
      </ul>
      <p class="soft small">
        {rest > 0 && `and ${formatInteger(rest)} more. `}All of them:{" "}
        <code class="num">cluster result {job.job_id} --fetch DIR</code>
      </p>
    </div>
  );
}

/** Maximum size of a download in bytes, because browsers keep files in memory until they are saved. */
const MOST_BYTES = 512 << 20;

async function save(file: Output): Promise<void> {
  const name = file.path.split("/").at(-1) ?? file.path;
  try {
    if (file.bytes > MOST_BYTES) throw new Error(`${formatBytes(file.bytes)} are too many for a page`);
    download(name, await content(file));
  } catch (error) {
    showError(`Save ${name}`, error);
  }
}
