/**
 * The pages' only table of kinds of job. A kind without an entry gets the generic page
 * (pages/kinds), a form with all its parameters, and its result as tables.
 */

export interface KindEntry {
  /** The page that shows its jobs; the generic one where it has none of its own. */
  page?: PageEntry;
  /**
   * Its units are runs of a program: each has a state, an exit code and a log of its own. Its form is not made of the
   * schema alone, and its one-line summary has the few parameters only.
   */
  programs?: boolean;
  /** Its jobs are the cluster's own: nobody submits one. */
  kept?: boolean;
  /** Parameters that most jobs need, in the form's order; the rest is under "More parameters". */
  few: readonly string[];
  /** Parameters that say how a job is computed or drawn, not what; left out of a job's one-line summary. */
  quiet: readonly string[];
  /** Figures that sum a result up: title, and the path of names and places in the result. */
  figures: readonly Figure[];
  /** A first job, as somebody types it into a shell. */
  command: string;
  /** One that any worker computes within seconds, as fields of a workflow's action. */
  action?: readonly string[];
}

export type Figure = readonly [title: string, path: string];

export interface PageEntry {
  name: string;
  address: string;
  title: string;
}

export const KINDS: Readonly<Record<string, KindEntry>> = {
  thread: {
    page: { name: "threads", address: "/", title: "Threads" },
    few: ["thread_count", "max_depth", "replicas", "cores", "scheduler", "seed"],
    quiet: ["batch_size"],
    figures: [
      ["replicas", "replicas"],
      ["mean makespan, µs", "cells.0.metrics.makespan_us.mean"],
      ["mean speedup", "cells.0.metrics.speedup.mean"],
      ["mean utilisation", "cells.0.metrics.utilization.mean"],
      ["threads simulated", "threads_simulated"],
    ],
    command: "cluster submit thread --cores 1,2,4,8 --replicas 256 --wait",
  },
  collatz: {
    page: { name: "collatz", address: "/collatz.html", title: "Collatz" },
    few: ["mode", "start_number", "number_count", "n"],
    quiet: ["columns", "density", "known", "batch_size"],
    figures: [
      ["numbers", "count"],
      ["mean delay", "delay.mean"],
      ["longest delay", "delay.max.value"],
      ["at n", "delay.max.n"],
      ["highest peak", "peak.max.value"],
      ["steps", "steps"],
      ["checksum", "checksum"],
    ],
    command: "cluster submit collatz --start-number 1 --number-count 100000000 --wait",
    action: ["action_type: collatz", "start_number: 1", "number_count: 1000000"],
  },
  service: {
    programs: true,
    kept: true,
    few: ["service", "engine"],
    quiet: ["command", "env", "packages", "module", "health", "start_timeout_seconds", "grace_seconds"],
    figures: [],
    command: "cluster serve model.gguf",
  },
  command: {
    programs: true,
    few: ["command", "count", "items", "files"],
    quiet: [],
    figures: [],
    command: "cluster submit command --count 100 -- ./simulate --seed {unit}",
  },
};

const GENERIC: PageEntry = { name: "kinds", address: "/kinds.html", title: "Kinds" };
const CLUSTER: PageEntry = { name: "cluster", address: "/cluster.html", title: "Cluster" };

/** All pages, in the order of the header. */
export const PAGES: readonly PageEntry[] = [
  ...Object.values(KINDS).flatMap((kind) => kind.page ?? []),
  GENERIC,
  CLUSTER,
];

/** Whether somebody with these scopes may submit jobs of a kind. */
export function submits(kind: string, scopes: readonly string[]): boolean {
  const needed = KINDS[kind]?.programs ? ["submit", "run"] : ["submit"];
  return scopes.includes("admin") || needed.every((each) => scopes.includes(each));
}

/** Whether jobs of a kind are listed beside others: those that the cluster keeps are listed with what they are of. */
export function isListed(kind: string): boolean {
  return !KINDS[kind]?.kept;
}

/** The page of a kind; the generic one where it has none of its own. */
export function pageOf(kind: string): PageEntry {
  return KINDS[kind]?.page ?? GENERIC;
}

/** Where a job is shown: by the page of its kind, or by the generic page. */
export function addressOf(kind: string, job: string, page: PageEntry = pageOf(kind)): string {
  return page === GENERIC ? genericAddress(kind, job) : `${page.address}#job=${job}`;
}

/** The generic page of any kind: its form, or one of its jobs. */
export function genericAddress(kind: string, job = ""): string {
  return `${GENERIC.address}#kind=${encodeURIComponent(kind)}${job ? `&job=${job}` : ""}`;
}

/** The address of the job list, or of one job in it. */
export function clusterAddress(job = ""): string {
  return `${CLUSTER.address}#tab=jobs${job ? `&job=${job}` : ""}`;
}
