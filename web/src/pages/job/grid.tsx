/** All units as cells whose color and symbol show their state. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Job, Unit, UnitState } from "../../lib/api";
import { formatInteger, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { token } from "../../lib/theme";
import { Button } from "../../ui/button";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import {
  cellAt,
  cellShares,
  divideCell,
  layOutGrid,
  cellAfterKey,
  findNextUnit,
  cellPosition,
  type UnitGridLayout,
} from "./model/grid";
import { unitState, type ProgramUnits } from "./model/programs";
import { openUnit, state } from "./model/state";
import { describeExit, describeCounts, UNIT_STATES, unitStateTitle } from "./model/units";
import { UnitStateIcon } from "./unit-state";

/** Hint how to open a unit; touch screens have no hover. */
const POINTER_HINT = matchMedia("(hover: none)").matches
  ? "Tap a unit to open its log."
  : "Hover for details. Click to open the log.";

/** Time in milliseconds that the pointer must rest on a cell before its unit is requested. */
const HOVER_MS = 120;

interface Props {
  job: Job;
  programs: ProgramUnits;
  list: Uint8Array;
}

/** Show only units in one state, or all units if the state is already selected. */
export function toggleStateFilter(name: UnitState): void {
  state.units.value = state.units.peek() === name ? "" : name;
  state.from.value = 0;
  state.commit();
}

export function UnitGrid({ job, programs, list }: Props) {
  const width = useSignal(600);
  const container = useRef<HTMLDivElement>(null);
  const cursor = useSignal<number | undefined>(undefined);
  const grid = useComputed(() => layOutGrid(programs.states.value?.length ?? list.length, width.value));
  const canvas = useCanvas((context) => drawGrid(context, grid.value, programs.states.value ?? list));
  useLayoutEffect(() => {
    const measure = () => (width.value = container.current?.clientWidth || width.peek());
    measure();
    const watcher = new ResizeObserver(measure);
    if (container.current) watcher.observe(container.current);
    return () => watcher.disconnect();
  }, []);
  const at = cursor.value === undefined ? undefined : unitOfCell(cursor.value, grid.value, list);
  useEffect(() => {
    if (at === undefined) return undefined;
    const timer = setTimeout(() => programs.ask(at), HOVER_MS);
    return () => clearTimeout(timer);
  }, [at, programs.changes.value]);
  const next = (name: UnitState) => {
    const unit = findNextUnit(list, UNIT_STATES.indexOf(name), state.unit.peek());
    if (unit !== undefined) openUnit(unit);
  };
  useLayoutEffect(
    () =>
      bindShortcuts({
        D: { text: "next failed unit", run: () => next("dead") },
        U: { text: "to the grid of units", run: () => container.current?.focus() },
      }),
    [list],
  );
  const find = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return cellAt(event.clientX - box.left, event.clientY - box.top, grid.value);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      if (at !== undefined) openUnit(at);
    } else {
      const there = cellAfterKey(cursor.peek() ?? 0, event.key, grid.value);
      if (there === undefined) return;
      cursor.value = there;
    }
    event.preventDefault();
  };
  const counts = programs.counts.value;
  const summary = `Units: ${counts ? describeCounts(counts, list.length) : ""}`;
  const words = at === undefined ? "" : describeUnit(at, grid.value, list, programs.row(at));
  return (
    <Figure
      title="Units"
      summary={summary}
      getTable={() => ({
        head: ["units", "state"],
        rows: findRuns(list).map(([lo, hi, name]) => [
          hi - lo === 1 ? formatInteger(lo) : `${lo} to ${hi - 1}`,
          unitStateTitle(name),
        ]),
      })}
      note={<Legend programs={programs} />}
    >
      <div
        ref={container}
        class="unit-grid"
        role="slider"
        tabIndex={0}
        aria-label={`Units of job ${job.job_id}`}
        aria-valuemin={0}
        aria-valuemax={list.length - 1}
        aria-valuenow={at ?? 0}
        aria-valuetext={words || summary}
        style={{ height: `${grid.value.height}px` }}
        onKeyDown={onKey}
        onFocus={() => (cursor.value ??= Math.max(0, Math.floor(state.unit.peek() / grid.peek().unitsPerCell)))}
        onMouseMove={(event) => (cursor.value = find(event))}
        onMouseLeave={() => (cursor.value = undefined)}
        onClick={(event) => {
          const cell = find(event);
          if (cell !== undefined) openUnit(unitOfCell(cell, grid.value, list));
        }}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
        <CellFrame state="chosen" cell={Math.floor(state.unit.value / grid.value.unitsPerCell)} grid={grid.value} />
        <CellFrame state="cursor" cell={cursor.value ?? -1} grid={grid.value} />
      </div>
      <p class="small readout">
        {words || (
          <span class="soft">
            {POINTER_HINT}
            {grid.value.unitsPerCell > 1 &&
              ` Each cell is ${formatInteger(grid.value.unitsPerCell)} units, colored by share.`}
          </span>
        )}
      </p>
    </Figure>
  );
}

/** Return the unit of a cell: the first one in its most urgent state. */
function unitOfCell(cell: number, grid: UnitGridLayout, list: Uint8Array): number {
  const first = cell * grid.unitsPerCell;
  if (grid.unitsPerCell === 1) return first;
  const [urgent] = cellShares(list, cell, grid);
  return Math.max(first, list.indexOf(urgent?.code ?? 0, first));
}

function describeUnit(unit: number, grid: UnitGridLayout, list: Uint8Array, row: Unit | undefined): string {
  const name = unitState(list, unit);
  const first = Math.floor(unit / grid.unitsPerCell) * grid.unitsPerCell;
  const shared =
    grid.unitsPerCell > 1
      ? `units ${formatInteger(first)} to ${formatInteger(Math.min(list.length, first + grid.unitsPerCell) - 1)}; `
      : "";
  const known = row && row.state === name ? row : undefined;
  return [
    `${shared}unit ${formatInteger(unit)}: ${unitStateTitle(name)}`,
    known && describeExit(known),
    known?.seconds !== null && known?.seconds !== undefined && formatSeconds(known.seconds),
    known?.attempts && `attempt ${known.attempts}`,
    known?.worker && `on ${known.worker}`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** Return runs of consecutive units with the same state. */
function findRuns(list: Uint8Array): [lo: number, hi: number, state: UnitState][] {
  const found: [number, number, UnitState][] = [];
  for (let unit = 0; unit < list.length; unit += 1) {
    const last = found.at(-1);
    if (last && list[unit] === list[unit - 1]) last[1] = unit + 1;
    else found.push([unit, unit + 1, unitState(list, unit)]);
  }
  return found;
}

function Legend({ programs }: { programs: ProgramUnits }) {
  const counts = programs.counts.value;
  return (
    <div class="segments loose" role="group" aria-label="Units shown">
      {UNIT_STATES.map((name) => (
        <Button
          key={name}
          aria-pressed={state.units.value === name}
          disabled={!counts?.[name] && state.units.value !== name}
          onClick={() => toggleStateFilter(name)}
        >
          <span class="state">
            <UnitStateIcon state={name} /> {unitStateTitle(name)}{" "}
            <span class="num">{formatInteger(counts?.[name] ?? 0)}</span>
          </span>
        </Button>
      ))}
    </div>
  );
}

/** Frame around a cell as a separate element, so that the grid need not be redrawn. */
function CellFrame({ state: name, cell, grid }: { state: string; cell: number; grid: UnitGridLayout }) {
  if (cell < 0 || cell >= grid.cells) return null;
  const [left, top] = cellPosition(cell, grid);
  const size = `${grid.cellSize + 1}px`;
  return <i class={name} style={{ left: `${left - 1}px`, top: `${top - 1}px`, width: size, height: size }} />;
}

// -- drawing --------------------------------------------------------------------------------------------------------

/** Minimum cell size in pixels for symbols. */
const MIN_SYMBOL_SIZE = 8;

function drawGrid(context: CanvasRenderingContext2D, grid: UnitGridLayout, list: Uint8Array): void {
  const colors = UNIT_STATES.map((name) => token(`unit-${name}`));
  const size = grid.cellSize - (grid.cellSize > 6 ? 2 : 1);
  const selectedCode = UNIT_STATES.indexOf(state.units.value as UnitState);
  const waiting = UNIT_STATES.indexOf("waiting");
  let used = -1;
  const use = (code: number) => {
    if (code === used) return;
    used = code;
    context.fillStyle = context.strokeStyle = colors[code] as string;
    // Waiting cells without a frame are paler, so that they do not dominate.
    const usual = grid.cellSize < MIN_SYMBOL_SIZE && code === waiting ? 0.5 : 1;
    context.globalAlpha = selectedCode < 0 || selectedCode === code ? usual : 0.15;
  };
  for (let cell = 0; cell < grid.cells; cell += 1) {
    const [x, y] = cellPosition(cell, grid);
    if (grid.unitsPerCell > 1) {
      let left = 0;
      for (const { code, width } of divideCell(cellShares(list, cell, grid), size)) {
        use(code);
        context.fillRect(x + left, y, width, size);
        left += width;
      }
      continue;
    }
    const code = list[cell] as number;
    use(code);
    if (grid.cellSize >= MIN_SYMBOL_SIZE) drawSymbol(context, code, x, y, size);
    else context.fillRect(x, y, size, size);
  }
  context.globalAlpha = 1;
}

/** Draw the symbol that distinguishes a state without color. */
function drawSymbol(context: CanvasRenderingContext2D, code: number, x: number, y: number, size: number): void {
  const name = UNIT_STATES[code];
  if (name === "waiting") {
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    return;
  }
  context.fillRect(x, y, size, size);
  if (name === "done") return;
  context.save();
  context.fillStyle = context.strokeStyle = token("bg");
  context.lineWidth = Math.max(1, size / 7);
  if (name === "running") context.fillRect(x + 1, y + 1, size - 2, size / 2 - 1);
  else if (name === "retrying") context.fillRect(x + 1, y + size * 0.38, size - 2, size * 0.24);
  else {
    context.beginPath();
    context.moveTo(x + 1.5, y + 1.5);
    context.lineTo(x + size - 1.5, y + size - 1.5);
    context.moveTo(x + size - 1.5, y + 1.5);
    context.lineTo(x + 1.5, y + size - 1.5);
    context.stroke();
  }
  context.restore();
}
