/** Hosts: how each is, in words. Pure. */

import type { Host, Worker } from "../../../lib/api";
import { percent, seconds, THIN } from "../../../lib/format";

/** online, draining or lost. */
export function stateOf({ live, draining }: Pick<Host, "live" | "draining">): string {
  if (!live) return "lost";
  return draining ? "draining" : "online";
}

/** Seconds by which a clock may be wrong before somebody should know. */
const CLOCK_SECONDS = 0.5;

/** How far a host's clock is from the cluster's, and whether that is too far; undefined where nobody knows. */
export function clockOf(host: Pick<Host, "clock_offset_seconds">): { text: string; wrong: boolean } | undefined {
  const offset = host.clock_offset_seconds;
  if (offset === null) return undefined;
  const size = Math.abs(offset);
  if (size < 0.001) return { text: `within 1${THIN}ms`, wrong: false };
  return { text: `${seconds(size)} ${offset > 0 ? "ahead" : "behind"}`, wrong: size > CLOCK_SECONDS };
}

export interface Named {
  name: string;
  text: string;
  /** It is not the coordinators'. */
  other: boolean;
}

const NAMES: Readonly<Record<string, string>> = { threads_cluster: "cluster" };

/** Versions of a host, ours first, and whether ours differs from that of the coordinators. */
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

/** Why workers of a host take nothing new, each reason once, with whose it is. */
export function cordonsOf({ workers }: Pick<Host, "workers">, all: readonly Worker[]): string[] {
  return all.flatMap(({ id, live, cordoned }) =>
    live && cordoned && workers.includes(id) ? [`${id}: ${cordoned}`] : [],
  );
}

/** Load per processor, 1 is a queue of none; undefined where nobody knows. */
export function loadOf({ load1, cpus }: Pick<Host, "load1" | "cpus">): string | undefined {
  if (load1 === null) return undefined;
  return `${load1.toFixed(load1 < 10 ? 1 : 0)}${cpus ? ` of ${cpus}` : ""}`;
}

/** Labels as texts: those that the operator gave, which tenants may require, and what runners say besides. */
export function labelsOf({
  labels,
  given_labels,
}: Pick<Host, "labels" | "given_labels">): Record<"given" | "said", string> {
  return { given: given_labels.join(", "), said: labels.filter((label) => !given_labels.includes(label)).join(", ") };
}

/** GPUs on which no worker computes, each with its use where that is known. */
export function cardsOf({ cards }: Pick<Host, "cards">): string[] {
  return cards.map(({ card, name, utilization_ratio: used }) => {
    const known = used === null || used === undefined ? "" : `, ${percent(used)} used`;
    return `${card}: ${name}${known}`;
  });
}
