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
import { LogView } from "../../logs/view";
import { openUnit } from "./model/state";
import { unitState, type ProgramUnits } from "./model/programs";
import { loadContent, describeExit, isStoredFile, loadOutputs, formatValue, type OutputFile } from "./model/units";
import { UnitStateLabel } from "./unit-state";

interface Props {
  job: Job;
  programs: ProgramUnits;
  list: Uint8Array;
  unit: number;
  /** True in the overview, which shows only one unit. */
  isFirst?: boolean;
}

export function UnitView({ job, programs, list, unit, isFirst = false }: Props) {
  useEffect(() => programs.ask(unit), [programs.changes.value]);
  const row = programs.row(unit);
  const name = unitState(list, unit);
  const turn = useLogVersion(name);
  const alone = list.length === 1;
  return (
    <section class="part stack" aria-label={`Unit ${unit}`}>
      <div class="row">
        {!alone && <h2>Unit {formatInteger(unit)}</h2>}
        <UnitStateLabel state={name} />
        {row && <UnitExit unit={row} />}
        <span class="grow" />
        {!alone && !isFirst && <NeighborButtons unit={unit} total={list.length} />}
        {!alone && isFirst && <Button onClick={() => openUnit(unit)}>Open in Units</Button>}
      </div>
      {row?.error && !isFirst && row.error !== `exit code ${row.exit}` && (
        <p class={name === "dead" ? "trouble" : "soft"}>{row.error}</p>
      )}
      {row && !isStoredFile(row.value) && formatValue(row.value) && (
        <p>
          <span class="soft">value</span> <code>{formatValue(row.value)}</code>
        </p>
      )}
      {row?.artifact && <OutputList key={row.artifact} job={job} artifact={row.artifact} unit={unit} />}
      <LogView job={job.job_id} unit={unit} running={name === "running"} key={turn} />
    </section>
  );
}

/**
 * Changes when the log must be opened again. A followed log detects the program's exit itself, so the reader keeps the
 * position.
 */
function useLogVersion(name: UnitState): number {
  const turn = useRef({ name, count: 0 });
  const { name: before, count } = turn.current;
  if (name !== before) turn.current = { name, count: before === "running" ? count : count + 1 };
  return turn.current.count;
}

function UnitExit({ unit }: { unit: Unit }) {
  const openedAt = useMemo(() => Date.now(), [unit]);
  const since = unit.state === "running" ? Math.max(0, now.value - openedAt) / 1000 : 0;
  const facts = [
    describeExit(unit),
    unit.seconds === null ? "" : formatSeconds(unit.seconds + since),
    unit.attempts && unit.attempts > 1 ? `attempt ${unit.attempts}` : "",
    unit.worker ? `on ${unit.worker}` : "",
  ];
  return <span class="mono soft">{facts.filter(Boolean).join(", ")}</span>;
}

function NeighborButtons({ unit, total }: { unit: number; total: number }) {
  return (
    <>
      <Button disabled={unit === 0} onClick={() => openUnit(unit - 1)}>
        Previous
      </Button>
      <Button disabled={unit === total - 1} onClick={() => openUnit(unit + 1)}>
        Next
      </Button>
      <Button class="plain" onClick={() => openUnit(-1)}>
        Close unit
      </Button>
    </>
  );
}

/** Maximum number of listed files; a shell command downloads all. */
const MAX_FILES = 20;

function OutputList({ job, artifact, unit }: { job: Job; artifact: string; unit: number }) {
  const { value: files, problem } = useRequest(() => loadOutputs(artifact, unit));
  if (problem) return <ErrorMessage subject="Outputs" problem={problem} />;
  if (!files) return <LoadingRows rows={1} />;
  if (!files.length) return null;
  const rest = files.length - MAX_FILES;
  return (
    <div class="outputs">
      <h3>Outputs</h3>
      <ul>
        {files.slice(0, MAX_FILES).map((file) => (
          <li key={file.path}>
            <Button class="link mono" onClick={() => void saveFile(file)}>
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
const MAX_BYTES = 512 << 20;

async function saveFile(file: OutputFile): Promise<void> {
  const name = file.path.split("/").at(-1) ?? file.path;
  try {
    if (file.bytes > MAX_BYTES) throw new Error(`${formatBytes(file.bytes)} are too many for a page`);
    download(name, await loadContent(file));
  } catch (error) {
    showError(`Save ${name}`, error);
  }
}
