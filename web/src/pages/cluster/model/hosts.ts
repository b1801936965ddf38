/** Descriptions of a host's state. Pure functions. */

import type { Host, Worker } from "../../../lib/api";
import { formatPercent, formatSeconds, NARROW_SPACE } from "../../../lib/format";

/** Return online, draining or lost. */
export function stateOf({ live, draining }: Pick<Host, "live" | "draining">): string {
  if (!live) return "lost";
  return draining ? "draining" : "online";
}

/** Clock difference in seconds above which the page shows a warning. */
const CLOCK_SECONDS = 0.5;

/** Return the clock difference of a host and whether it is too large; undefined if unknown. */
export function clockOf(host: Pick<Host, "clock_offset_seconds">): { text: string; wrong: boolean } | undefined {
  const offset = host.clock_offset_seconds;
  if (offset === null) return undefined;
  const size = Math.abs(offset);
  if (size < 0.001) return { text: `within 1${NARROW_SPACE}ms`, wrong: false };
  return { text: `${formatSeconds(size)} ${offset > 0 ? "ahead" : "behind"}`, wrong: size > CLOCK_SECONDS };
}

export interface Named {
  name: string;
  text: string;
  /** True if the version differs from the coordinators' version. */
  other: boolean;
}

const NAMES: Readonly<Record<string, string>> = { threads_cluster: "cluster" };

/** Return a host's software versions, the project's first, and whether it differs from the coordinators' version. */
export function versionsOf(host: Pick<Host, "versions">, ours: string | undefined): Named[] {
  const all = Object.entries(host.versions).filter(([, list]) => list.length);
  const own = ([name]: [string, unknown]) => (name === "threads_cluster" ? 0 : 1);
  return all
    .sort((left, right) => own(left) - own(right))
    .map(([name, list]) => ({
      name: NAMES[name] ?? name,
      text: list.join(", "),
      other: name === "threads_cluster" && ours !== undefined && list.some((each) => each !== ours),
    }));
}

/** Return the distinct reasons why workers of a host accept no new work, with the workers. */
export function cordonsOf({ workers }: Pick<Host, "workers">, all: readonly Worker[]): string[] {
  return all.flatMap(({ id, live, cordoned }) =>
    live && cordoned && workers.includes(id) ? [`${id}: ${cordoned}`] : [],
  );
}

/** Format the load per processor; undefined if unknown. */
export function loadOf({ load1, cpus }: Pick<Host, "load1" | "cpus">): string | undefined {
  if (load1 === null) return undefined;
  return `${load1.toFixed(load1 < 10 ? 1 : 0)}${cpus ? ` of ${cpus}` : ""}`;
}

/** Return the labels as texts: those that the operator assigned and tenants can require, and others of runners. */
export function labelsOf({
  labels,
  given_labels,
}: Pick<Host, "labels" | "given_labels">): Record<"given" | "said", string> {
  return { given: given_labels.join(", "), said: labels.filter((label) => !given_labels.includes(label)).join(", ") };
}

/** Describe the GPUs without a worker, with their utilization if known. */
export function cardsOf({ cards }: Pick<Host, "cards">): string[] {
  return cards.map(({ card, name, utilization_ratio: used }) => {
    const known = used === null || used === undefined ? "" : `, ${formatPercent(used)} used`;
    return `${card}: ${name}${known}`;
  });
}
