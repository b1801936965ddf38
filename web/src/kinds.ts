/**
 * The table of job kinds for all pages. A kind without an entry gets a form for all parameters on the page Run
 * (pages/kinds). The page of its jobs (pages/job) shows the result as tables.
 */

export interface KindEntry {
  /** Page with pictures of the kind's jobs, in addition to the page of each job. */
  page?: PageEntry;
  /**
   * True if the kind's units run programs. Each unit then has a state, an exit code and a log. The form has extra
   * fields, and the one-line summary shows only the parameters in `mainParameters`.
   */
  hasPrograms?: boolean;
  /** True if only the cluster creates the kind's jobs, so that users cannot submit them. */
  isInternal?: boolean;
  /** Parameters that most jobs need, in the order of the form; other parameters are under "More parameters". */
  mainParameters: readonly string[];
  /** Parameters that affect only how a job is computed or drawn; omitted from the job's one-line summary. */
  technicalParameters: readonly string[];
  /** Values that summarize a result: title, and path in the result. */
  resultValues: readonly ResultValue[];
  /** Example shell command that submits a first job. */
  exampleCommand: string;
  /** Example job that every worker computes within seconds, as fields of a workflow action. */
  exampleAction?: readonly string[];
}

export type ResultValue = readonly [title: string, path: string];

export interface PageEntry {
  name: string;
  address: string;
  title: string;
}

export const KINDS: Readonly<Record<string, KindEntry>> = {
  thread: {
    page: { name: "threads", address: "/index.html", title: "Threads" },
    mainParameters: ["thread_count", "max_depth", "replicas", "cores", "scheduler", "seed"],
    technicalParameters: ["batch_size"],
    resultValues: [
      ["replicas", "replicas"],
      ["mean makespan, µs", "cells.0.metrics.makespan_us.mean"],
      ["mean speedup", "cells.0.metrics.speedup.mean"],
      ["mean utilization", "cells.0.metrics.utilization.mean"],
      ["threads simulated", "threads_simulated"],
    ],
    exampleCommand: "cluster submit thread --cores 1,2,4,8 --replicas 256 --wait",
  },
  collatz: {
    page: { name: "collatz", address: "/collatz.html", title: "Collatz" },
    mainParameters: ["mode", "start_number", "number_count", "n"],
    technicalParameters: ["columns", "density", "known", "batch_size"],
    resultValues: [
      ["numbers", "count"],
      ["mean delay", "delay.mean"],
      ["longest delay", "delay.max.value"],
      ["at n", "delay.max.n"],
      ["highest peak", "peak.max.value"],
      ["steps", "steps"],
      ["checksum", "checksum"],
    ],
    exampleCommand: "cluster submit collatz --start-number 1 --number-count 100000000 --wait",
    exampleAction: ["action_type: collatz", "start_number: 1", "number_count: 1000000"],
  },
  service: {
    hasPrograms: true,
    isInternal: true,
    mainParameters: ["service", "engine"],
    technicalParameters: ["command", "env", "packages", "module", "health", "start_timeout_seconds", "grace_seconds"],
    resultValues: [],
    exampleCommand: "cluster serve model.gguf",
  },
  command: {
    hasPrograms: true,
    mainParameters: ["command", "count", "items", "files"],
    technicalParameters: [],
    resultValues: [],
    exampleCommand: "cluster submit command --count 100 -- ./simulate --seed {unit}",
  },
};

const GENERIC: PageEntry = { name: "run", address: "/kinds.html", title: "Run" };
const CLUSTER = "/cluster.html";

/** Return the entry of a part of the cluster page. */
function clusterPart(name: string, title: string, tab = name): PageEntry {
  return { name, address: `${CLUSTER}#tab=${tab}`, title };
}

/** The pages and the parts of the cluster page, in the order of the header. */
export const PAGES: readonly PageEntry[] = [
  // With a fragment, the link does not load the page again.
  { name: "home", address: `${CLUSTER}#`, title: "Home" },
  GENERIC,
  clusterPart("jobs", "Jobs"),
  clusterPart("workflows", "Workflows"),
  clusterPart("services", "Services"),
  clusterPart("machines", "Machines", "hosts"),
  clusterPart("monitoring", "Monitoring"),
  clusterPart("admin", "Admin"),
];

/** Pages of single kinds, which the header lists after all others. */
export const LABS: readonly PageEntry[] = Object.values(KINDS).flatMap((kind) => kind.page ?? []);

/** Return True if a user with these scopes can submit jobs of a kind. */
export function canSubmit(kind: string, scopes: readonly string[]): boolean {
  const needed = KINDS[kind]?.hasPrograms ? ["submit", "run"] : ["submit"];
  return scopes.includes("admin") || needed.every((scope) => scopes.includes(scope));
}

/** Return True if jobs of a kind appear in job lists; jobs that the cluster creates appear only with their owner. */
export function isListed(kind: string): boolean {
  return !KINDS[kind]?.isInternal;
}

/** Return the URL of a job's page. */
export function jobAddress(job: string): string {
  return `/job.html#job=${encodeURIComponent(job)}`;
}

/** Return the URL of a kind's form; with a job, the form contains the job's parameters. */
export function formAddress(kind: string, job = ""): string {
  return `${GENERIC.address}#kind=${encodeURIComponent(kind)}${job && `&copy=${encodeURIComponent(job)}`}`;
}

/** Return the URL of the list of jobs that match a filter. */
export function jobListAddress(filter: string): string {
  return `${CLUSTER}#tab=jobs&filter=${encodeURIComponent(filter)}`;
}

/** Return the URL of a workflow. */
export function workflowAddress(id: string): string {
  return `${CLUSTER}#tab=workflows&workflow=${id}`;
}
