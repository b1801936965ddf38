/** Units of the open job: their states, kept up to date, and the requested unit records. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { asProblem, type Problem, type Job, type Unit } from "../../../lib/api";
import { isEnded } from "../../../lib/fleet";
import { follow } from "../../../lib/follow";
import { stateCodes, countStates, loadBlock, UNIT_STATES, loadUnitStates, blockStart, type StateCounts } from "./units";

export interface ProgramUnits {
  /** State code of each unit; undefined until known. */
  states: ReadonlySignal<Uint8Array | undefined>;
  counts: ReadonlySignal<StateCounts | undefined>;
  /** Number of state changes; records read before the last change may be outdated. */
  changes: ReadonlySignal<number>;
  problem: ReadonlySignal<Problem | undefined>;
  /** Return the record of a unit, requesting it if needed; undefined until it is loaded. */
  row(unit: number): Unit | undefined;
  ask(unit: number): void;
  /** Report that the job changed. */
  update(job: Job): void;
  stop(): void;
}

function areEqual(left: Uint8Array | undefined, right: Uint8Array): boolean {
  return left !== undefined && left.length === right.length && left.every((code, index) => code === right[index]);
}

export function followUnits(first: Job): ProgramUnits {
  let job = first;
  const states = signal<Uint8Array | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  const changes = signal(0);
  const rows = signal<ReadonlyMap<number, Unit>>(new Map());
  const requestedUnits = new Set<number>();
  const control = new AbortController();

  const ask = async (stop: AbortSignal) => {
    try {
      const list = stateCodes(await loadUnitStates(job.job_id, stop));
      problem.value = undefined;
      if (areEqual(states.peek(), list)) return;
      states.value = list;
      changes.value += 1;
      requestedUnits.clear();
    } catch (error) {
      if (!stop.aborted) problem.value = asProblem(error);
      throw error;
    }
  };
  const follower = follow(ask, () => !isEnded(job));

  const askRows = (unit: number) => {
    const from = blockStart(unit);
    if (requestedUnits.has(from)) return;
    requestedUnits.add(from);
    loadBlock(job.job_id, unit, control.signal).then(
      (list) => (rows.value = new Map([...rows.peek(), ...list.map((each) => [each.unit, each] as const)])),
      () => requestedUnits.delete(from),
    );
  };
  return {
    states,
    counts: computed(() => states.value && countStates(states.value)),
    changes,
    problem,
    row: (unit) => rows.value.get(unit),
    ask: askRows,
    update: (next) => {
      job = next;
      follower.notify();
    },
    stop: () => {
      control.abort();
      follower.stop();
    },
  };
}

export function unitState(list: Uint8Array, unit: number): (typeof UNIT_STATES)[number] {
  return UNIT_STATES[list[unit] ?? 0] ?? "waiting";
}
