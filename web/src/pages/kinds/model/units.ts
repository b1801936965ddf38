/** Units of a job that runs programs: their states, their rows, and when to ask for them again. */

import { bytes, get, type Query, type Unit, type Units, type UnitState, type UnitStates } from "../../../lib/api";

/** In the order of a unit's life; its place is its code in a list of states. */
export const UNIT_STATES: readonly UnitState[] = ["waiting", "running", "done", "retrying", "dead"];
export type Counts = Record<UnitState, number>;

/** Rows of a page of the table. */
export const PAGE = 1000;
/** Rows asked for where one is looked at: its neighbours are looked at next. */
const NEIGHBOURS = 50;

export function unitStates(job: string, signal?: AbortSignal): Promise<UnitStates> {
  return get<UnitStates>(`/api/jobs/${job}/unit-states`, {}, signal);
}

/** Units of a state, or of any, from a number on. */
export function units(job: string, from: number, limit: number, state = "", signal?: AbortSignal): Promise<Units> {
  const query: Query = { from, limit, ...(state ? { state } : {}) };
  return get<Units>(`/api/jobs/${job}/units`, query, signal);
}

/** The first number of the page of neighbours that has a unit. */
export function windowOf(unit: number): number {
  return unit - (unit % NEIGHBOURS);
}

export async function neighbours(job: string, unit: number, signal?: AbortSignal): Promise<readonly Unit[]> {
  return (await units(job, windowOf(unit), NEIGHBOURS, "", signal)).units;
}

/** The code of each unit's state. Units that no run names wait. */
export function codes({ total, runs }: UnitStates): Uint8Array {
  const list = new Uint8Array(total);
  for (const [lo, hi, state] of runs) list.fill(Math.max(0, UNIT_STATES.indexOf(state)), lo, hi);
  return list;
}

/** Units in each state. */
export function counted(list: Uint8Array): Counts {
  const sums = UNIT_STATES.map(() => 0);
  for (const code of list) sums[code] = (sums[code] as number) + 1;
  return Object.fromEntries(UNIT_STATES.map((state, code) => [state, sums[code]])) as Counts;
}

/** `3 of 10 units done, 2 running, 1 dead, 4 waiting`. */
export function inWords(counts: Counts, total: number): string {
  const rest = (["running", "retrying", "dead", "waiting"] as const).filter((state) => counts[state]);
  return [`${counts.done} of ${total} units done`, ...rest.map((state) => `${counts[state]} ${state}`)].join(", ");
}

/** Why a unit ended, in words: `exit 1`, `timeout, exit 137`. */
export function ending({ exit, reason }: Pick<Unit, "exit" | "reason">): string {
  return [reason, exit === null ? "" : `exit ${exit}`].filter(Boolean).join(", ");
}

/** A value as a cell shows it: texts as they are, all else as JSON. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A value that was too large for the row, and is a file of the artifact. */
export function isKept(value: unknown): boolean {
  return typeof value === "object" && value !== null && (value as { artifact?: unknown }).artifact === true;
}

// -- outputs --------------------------------------------------------------------------------------------------------

export interface Output {
  path: string;
  bytes: number;
  sha: string;
}

/** Files of a unit in the manifest of its artifact: its outputs, and a value that was too large for its row. */
export function outputsOf(manifest: string, unit: number): Output[] {
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

export async function outputs(artifact: string, unit: number): Promise<Output[]> {
  return outputsOf(new TextDecoder().decode(await bytes(`/api/artifacts/${artifact}/manifest`)), unit);
}

/** Bytes of a file that somebody saves. */
export async function content({ sha }: Output): Promise<Blob> {
  return new Blob([await bytes(`/api/files/${sha}`)]);
}
