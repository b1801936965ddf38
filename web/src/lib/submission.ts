/** A job before its submission: as a form draft, a shell command, and Python code. Pure functions. */

import type { Job } from "./api";

export interface Draft {
  kind: string;
  parameters: Record<string, unknown>;
  priority: "high" | "normal" | "low";
  device: "any" | "cpu" | "gpu";
}

export const EMPTY_DRAFT: Draft = { kind: "", parameters: {}, priority: "normal", device: "any" };

/** Return a draft with the parameters of an existing job. */
export function createDraft(job: Job): Draft {
  const set = Object.entries(job.parameters).filter(([, value]) => value !== null);
  const device = (["cpu", "gpu", "any"] as const).find((each) => each === job.device) ?? "any";
  const priority = (["high", "normal", "low"] as const).find((each) => each === job.priority) ?? "normal";
  return { kind: job.type, parameters: Object.fromEntries(set), device, priority };
}

/** Return the body of POST /api/submit for a draft, without default values. */
export function createSubmission({ kind, parameters, priority, device }: Draft): Submission {
  return {
    type: kind,
    parameters,
    ...(priority === "normal" ? {} : { priority }),
    ...(device === "any" ? {} : { device }),
  };
}

export interface Submission {
  type: string;
  parameters: Record<string, unknown>;
  priority?: string;
  device?: string;
}

function requestBody({ type, parameters, priority, device }: Submission): Record<string, unknown> {
  return { type, parameters, ...(priority ? { priority } : {}), ...(device ? { device } : {}) };
}

/** Quote a text for a shell. */
function quoteShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function formatCurl(submission: Submission, origin: string, withToken: boolean): string {
  const token = withToken ? ` \\\n  -H "Authorization: Bearer $CLUSTER_TOKEN"` : "";
  return (
    `curl -sS ${origin}/api/submit${token} \\\n  -H 'Content-Type: application/json' \\\n  -d ` +
    `${quoteShell(JSON.stringify(requestBody(submission)))}`
  );
}

/** Format a value as a Python literal. */
export function formatLiteral(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(formatLiteral).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, each]) => `${JSON.stringify(name)}: ${formatLiteral(each)}`)
      .join(", ")}}`;
  }
  return JSON.stringify(value);
}

export function formatPython(submission: Submission, origin: string): string {
  const options = [
    submission.priority && `priority=${formatLiteral(submission.priority)}`,
    submission.device && `device=${formatLiteral(submission.device)}`,
  ];
  const more = options
    .filter(Boolean)
    .map((each) => `, ${each}`)
    .join("");
  return [
    "from threads_cluster import Cluster",
    "",
    `with Cluster(${formatLiteral(origin)}) as cluster:`,
    `    print(cluster.run(${formatLiteral(submission.type)}, ${formatLiteral(submission.parameters)}${more}))`,
    "",
  ].join("\n");
}
