/** Workers in numbers: how many live, and how many the work needs. Pure. */

import type { Status, Worker } from "../../../lib/api";

export type Desired = Status["desired_workers"];

export interface Count {
  device: string;
  live: number;
  /** Undefined while the cluster counts none, as it does without a leader. */
  desired: number | undefined;
}

/** Devices of which a worker lives or is desired. */
export function counts(workers: readonly Pick<Worker, "device" | "live">[], desired: Desired): Count[] {
  const live = workers.flatMap(({ live, device }) => (live && device ? [device] : []));
  return [...new Set([...Object.keys(desired), ...live])]
    .map((device) => ({ device, live: live.filter((each) => each === device).length, desired: desired[device] }))
    .filter((count) => count.live || count.desired);
}

/** `5`, or by device where there are others than CPUs: `5 CPU, 1 GPU`; empty while nobody counts. */
export function desiredText(all: readonly Count[]): string {
  const known = all.filter((count) => count.desired !== undefined);
  const alone = known.length === 1 && known[0]?.device === "cpu";
  const word = ({ device, desired }: Count) =>
    device === "runner" ? `${desired} runner${desired === 1 ? "" : "s"}` : `${desired} ${device.toUpperCase()}`;
  return known.map((count) => (alone ? `${count.desired}` : word(count))).join(", ");
}

/** `CPU workers`, `Runners`. */
export function titleOf(device: string): string {
  return device === "runner" ? "Runners" : `${device.toUpperCase()} workers`;
}
