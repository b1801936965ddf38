/** Descriptions of a host's state. Pure functions. */

import type { Host, Worker } from "../../../lib/api";
import { formatPercent, formatSeconds, NARROW_SPACE } from "../../../lib/format";

/** Return online, draining or lost. */
export function hostState({ live, draining }: Pick<Host, "live" | "draining">): string {
  if (!live) return "lost";
  return draining ? "draining" : "online";
}

/** Clock difference in seconds above which the page shows a warning. */
const CLOCK_SECONDS = 0.5;

/** Return the clock difference of a host and whether it is too large; undefined if unknown. */
export function describeClock(
  host: Pick<Host, "clock_offset_seconds">,
): { text: string; isWrong: boolean } | undefined {
  const offset = host.clock_offset_seconds;
  if (offset === null) return undefined;
  const size = Math.abs(offset);
  if (size < 0.001) return { text: `within 1${NARROW_SPACE}ms`, isWrong: false };
  return { text: `${formatSeconds(size)} ${offset > 0 ? "ahead" : "behind"}`, isWrong: size > CLOCK_SECONDS };
}

export interface SoftwareVersion {
  name: string;
  text: string;
  /** True if the version differs from the coordinators' version. */
  isDifferent: boolean;
}

const NAMES: Readonly<Record<string, string>> = { threads_cluster: "cluster" };

/** Return a host's software versions, the project's first, and whether it differs from the coordinators' version. */
export function listVersions(host: Pick<Host, "versions">, clusterVersion: string | undefined): SoftwareVersion[] {
  const all = Object.entries(host.versions).filter(([, list]) => list.length);
  const sortKey = ([name]: [string, unknown]) => (name === "threads_cluster" ? 0 : 1);
  return all
    .sort((left, right) => sortKey(left) - sortKey(right))
    .map(([name, list]) => ({
      name: NAMES[name] ?? name,
      text: list.join(", "),
      isDifferent:
        name === "threads_cluster" && clusterVersion !== undefined && list.some((each) => each !== clusterVersion),
    }));
}

/** Return the distinct reasons why workers of a host accept no new work, with the workers. */
export function listCordons({ workers }: Pick<Host, "workers">, all: readonly Worker[]): string[] {
  return all.flatMap(({ id, live, cordoned }) =>
    live && cordoned && workers.includes(id) ? [`${id}: ${cordoned}`] : [],
  );
}

/** Format the load per processor; undefined if unknown. */
export function formatLoad({ load1, cpus }: Pick<Host, "load1" | "cpus">): string | undefined {
  if (load1 === null) return undefined;
  return `${load1.toFixed(load1 < 10 ? 1 : 0)}${cpus ? ` of ${cpus}` : ""}`;
}

/** Return the labels as texts: those that the operator assigned and tenants can require, and others of runners. */
export function formatLabels({
  labels,
  given_labels,
}: Pick<Host, "labels" | "given_labels">): Record<"assigned" | "reported", string> {
  return {
    assigned: given_labels.join(", "),
    reported: labels.filter((label) => !given_labels.includes(label)).join(", "),
  };
}

/** Describe the GPUs without a worker, with their utilization if known. */
export function describeCards({ cards }: Pick<Host, "cards">): string[] {
  return cards.map(({ card, name, utilization_ratio: used }) => {
    const known = used === null || used === undefined ? "" : `, ${formatPercent(used)} used`;
    return `${card}: ${name}${known}`;
  });
}
