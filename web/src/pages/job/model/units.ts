/** Units of a job with programs: states, records, and refresh. */

import { getBytes, get, type Query, type Unit, type Units, type UnitState, type UnitStates } from "../../../lib/api";

/** States in the order of a unit's life; the index is the state code. */
export const UNIT_STATES: readonly UnitState[] = ["waiting", "running", "done", "retrying", "dead"];
/** Return the displayed name of a unit's state. */
export function unitStateTitle(state: UnitState): string {
  return state === "dead" ? "failed" : state;
}

export type StateCounts = Record<UnitState, number>;

/** Number of rows per table page. */
export const PAGE_SIZE = 1000;
/** Number of records per request, because neighbors are usually viewed next. */
const BLOCK_SIZE = 50;

export function loadUnitStates(job: string, signal?: AbortSignal): Promise<UnitStates> {
  return get<UnitStates>(`/api/jobs/${job}/unit-states`, {}, signal);
}

/** Return units from a number on, optionally in one state. */
export function loadUnits(job: string, from: number, limit: number, state = "", signal?: AbortSignal): Promise<Units> {
  const query: Query = { from, limit, ...(state ? { state } : {}) };
  return get<Units>(`/api/jobs/${job}/units`, query, signal);
}

/** Return the first unit of the block of records that contains a unit. */
export function blockStart(unit: number): number {
  return unit - (unit % BLOCK_SIZE);
}

export async function loadBlock(job: string, unit: number, signal?: AbortSignal): Promise<readonly Unit[]> {
  return (await loadUnits(job, blockStart(unit), BLOCK_SIZE, "", signal)).units;
}

/** Return the state code of each unit; unlisted units are waiting. */
export function stateCodes({ total, runs }: UnitStates): Uint8Array {
  const list = new Uint8Array(total);
  for (const [lo, hi, state] of runs) list.fill(Math.max(0, UNIT_STATES.indexOf(state)), lo, hi);
  return list;
}

/** Count the units in each state. */
export function countStates(list: Uint8Array): StateCounts {
  const sums = UNIT_STATES.map(() => 0);
  for (const code of list) sums[code] = (sums[code] as number) + 1;
  return Object.fromEntries(UNIT_STATES.map((state, code) => [state, sums[code]])) as StateCounts;
}

/** Format as `3 of 10 units done, 2 running, 1 failed, 4 waiting`. */
export function describeCounts(counts: StateCounts, total: number): string {
  const rest = (["running", "retrying", "dead", "waiting"] as const).filter((state) => counts[state]);
  return [
    `${counts.done} of ${total} units done`,
    ...rest.map((state) => `${counts[state]} ${unitStateTitle(state)}`),
  ].join(", ");
}

/** Describe why a unit exited, such as `exit 1` or `timeout, exit 137`. */
export function describeExit({ exit, reason }: Pick<Unit, "exit" | "reason">): string {
  return [reason, exit === null ? "" : `exit ${exit}`].filter(Boolean).join(", ");
}

/** Format a value for a cell: texts unchanged, other values as JSON. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return True if a value was too large for the record and is a file of the artifact. */
export function isStoredFile(value: unknown): boolean {
  return typeof value === "object" && value !== null && (value as { artifact?: unknown }).artifact === true;
}

// -- outputs --------------------------------------------------------------------------------------------------------

export interface OutputFile {
  path: string;
  bytes: number;
  sha: string;
}

/** Return the files of a unit in its artifact's manifest: outputs, and a value that was too large for its record. */
export function parseOutputs(manifest: string, unit: number): OutputFile[] {
  const [folder, value] = [`outputs/${unit}/`, `values/${unit}.json`];
  return manifest
    .split("\n")
    .slice(1)
    .filter((line) => line.startsWith('["f"') || line.startsWith('["x"'))
    .map((line) => JSON.parse(line) as [string, string, number, string])
    .filter(([, path]) => path.startsWith(folder) || path === value)
    .map(([, path, size, sha]) => ({
      path: path.startsWith(folder) ? path.slice(folder.length) : path,
      bytes: size,
      sha,
    }));
}

export async function loadOutputs(artifact: string, unit: number): Promise<OutputFile[]> {
  return parseOutputs(new TextDecoder().decode(await getBytes(`/api/artifacts/${artifact}/manifest`)), unit);
}

/** Return the contents of a file for saving. */
export async function loadContent({ sha }: OutputFile): Promise<Blob> {
  return new Blob([await getBytes(`/api/files/${sha}`)]);
}
