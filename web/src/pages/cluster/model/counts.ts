/** Numbers of live and needed workers. Pure functions. */

import type { Status, Worker } from "../../../lib/api";

export type DesiredWorkers = Status["desired_workers"];

export interface WorkerCount {
  device: string;
  live: number;
  /** Undefined if the cluster reports no number, for example without a leader. */
  desired: number | undefined;
}

/** Return the devices with live or desired workers. */
export function countWorkers(
  workers: readonly Pick<Worker, "device" | "live">[],
  desired: DesiredWorkers,
): WorkerCount[] {
  const live = workers.flatMap(({ live, device }) => (live && device ? [device] : []));
  return [...new Set([...Object.keys(desired), ...live])]
    .map((device) => ({ device, live: live.filter((each) => each === device).length, desired: desired[device] }))
    .filter((count) => count.live || count.desired);
}

/** Format as `5`, or with several devices as `5 CPU, 1 GPU`; empty without a reported number. */
export function describeDesired(all: readonly WorkerCount[]): string {
  const known = all.filter((count) => count.desired !== undefined);
  const alone = known.length === 1 && known[0]?.device === "cpu";
  const word = ({ device, desired }: WorkerCount) =>
    device === "runner" ? `${desired} runner${desired === 1 ? "" : "s"}` : `${desired} ${device.toUpperCase()}`;
  return known.map((count) => (alone ? `${count.desired}` : word(count))).join(", ");
}

/** Return the title of a device, such as `CPU workers` or `Runners`. */
export function deviceTitle(device: string): string {
  return device === "runner" ? "Runners" : `${device.toUpperCase()} workers`;
}
