/**
 * The table of job kinds for all pages. A kind without an entry gets the generic page (pages/kinds) with a form for all
 * parameters, and its result as tables.
 */

export interface KindEntry {
  /** Page for the kind's jobs; the generic page if absent. */
  page?: PageEntry;
  /**
   * True if the kind's units run programs. Each unit then has a state, an exit code and a log. The form has extra
   * fields, and the one-line summary shows only the parameters in `few`.
   */
  programs?: boolean;
  /** True if only the cluster creates the kind's jobs, so that users cannot submit them. */
  kept?: boolean;
  /** Parameters that most jobs need, in the order of the form; other parameters are under "More parameters". */
  few: readonly string[];
  /** Parameters that affect only how a job is computed or drawn; omitted from the job's one-line summary. */
  quiet: readonly string[];
  /** Values that summarize a result: title, and path in the result. */
  figures: readonly Figure[];
  /** Example shell command that submits a first job. */
  command: string;
  /** Example job that every worker computes within seconds, as fields of a workflow action. */
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
      ["mean utilization", "cells.0.metrics.utilization.mean"],
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

/** Return True if a user with these scopes can submit jobs of a kind. */
export function submits(kind: string, scopes: readonly string[]): boolean {
  const needed = KINDS[kind]?.programs ? ["submit", "run"] : ["submit"];
  return scopes.includes("admin") || needed.every((each) => scopes.includes(each));
}

/** Return True if jobs of a kind appear in job lists; jobs that the cluster creates appear only with their owner. */
export function isListed(kind: string): boolean {
  return !KINDS[kind]?.kept;
}

/** Return the page of a kind, or the generic page. */
export function pageOf(kind: string): PageEntry {
  return KINDS[kind]?.page ?? GENERIC;
}

/** Return the URL of a job on the page of its kind. */
export function addressOf(kind: string, job: string, page: PageEntry = pageOf(kind)): string {
  return page === GENERIC ? genericAddress(kind, job) : `${page.address}#job=${job}`;
}

/** Return the URL of a kind's form, or of one of its jobs, on the generic page. */
export function genericAddress(kind: string, job = ""): string {
  return `${GENERIC.address}#kind=${encodeURIComponent(kind)}${job ? `&job=${job}` : ""}`;
}

/** Return the URL of the job list, or of one job in it. */
export function clusterAddress(job = ""): string {
  return `${CLUSTER.address}#tab=jobs${job ? `&job=${job}` : ""}`;
}
