/** Runners: their resources and running programs. Pure functions. */

import type { Worker } from "../../../lib/api";
import { formatBytes, formatInteger, NARROW_SPACE } from "../../../lib/format";

type OfferedGpu = NonNullable<Worker["offer"]>["gpus"][number];

export function filterRunners(workers: readonly Worker[]): Worker[] {
  return workers.filter((worker) => worker.device === "runner");
}

const MIB = 1 << 20;

function describeGpu({ name, memory_mib: memory, compute_capability: capability }: OfferedGpu): string {
  const facts = [memory ? formatBytes(memory * MIB) : "", capability ? `compute ${capability}` : ""].filter(Boolean);
  return [name ?? "GPU", ...facts].join(", ");
}

/** List equal GPUs once with their number, such as `2 × NVIDIA H100, 80 GiB, compute 9.0`. */
export function describeGpus(gpus: readonly OfferedGpu[]): string[] {
  const counts = new Map<string, number>();
  for (const text of gpus.map(describeGpu)) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].map(([text, count]) => (count > 1 ? `${count}${NARROW_SPACE}×${NARROW_SPACE}${text}` : text));
}

const ISOLATION: Readonly<Record<string, string>> = {
  uid: "each slot has its own user; several tenants at once",
  shared: "one user for all slots; one tenant at a time",
};

/** Return a runner's resources and settings as names and texts; unreported ones are omitted. */
export function listResources({ offer, lanes, busy_lanes: busy, live, isolation }: Worker): [string, string][] {
  const facts: [string, string | undefined][] = [
    ["slots", live ? `${busy} of ${lanes} busy` : String(lanes)],
    ["CPUs", offer?.cpus === undefined ? undefined : String(offer.cpus)],
    ["memory", offer?.memory_mib === undefined ? undefined : formatBytes(offer.memory_mib * MIB)],
    ["GPUs", offer?.gpus === undefined ? undefined : describeGpus(offer.gpus).join("; ") || "none"],
    ["labels", offer?.labels?.length ? offer.labels.join(", ") : undefined],
    ["isolation", isolation ? `${isolation}: ${ISOLATION[isolation] ?? ""}`.replace(/: $/, "") : undefined],
    ["tenant now", offer?.tenant || undefined],
  ];
  return facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
}

/** Return the running units by job, such as `units 3, 4 and 5`. */
export function groupUnitsByJob(running: Worker["running"]): [job: string, units: string][] {
  const jobs = new Map<string, number[]>();
  for (const [job, unit] of running ?? []) jobs.set(job, [...(jobs.get(job) ?? []), unit]);
  return [...jobs].map(([job, units]) => {
    const texts = units.sort((left, right) => left - right).map((unit) => formatInteger(unit));
    const last = texts.pop() ?? "";
    return [job, texts.length ? `units ${texts.join(", ")} and ${last}` : `unit ${last}`];
  });
}
