/** A job before its submission as a shell command and Python code. Pure functions. */

import type { Draft } from "./draft";

/** Return the body of POST /api/submit for a draft, without default values. */
export function createSubmission({ kind, name, tags, parameters, priority, device }: Draft): Submission {
  return {
    type: kind,
    parameters,
    ...(name ? { name } : {}),
    ...(tags.length ? { tags } : {}),
    ...(priority === "normal" ? {} : { priority }),
    ...(device === "any" ? {} : { device }),
  };
}

export interface Submission {
  type: string;
  parameters: Record<string, unknown>;
  name?: string;
  tags?: readonly string[];
  priority?: string;
  device?: string;
}

/** Quote a text for a shell. */
function quoteShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function formatCurl(submission: Submission, origin: string, withToken: boolean): string {
  const token = withToken ? ` \\\n  -H "Authorization: Bearer $CLUSTER_TOKEN"` : "";
  return (
    `curl -sS ${origin}/api/submit${token} \\\n  -H 'Content-Type: application/json' \\\n  -d ` +
    `${quoteShell(JSON.stringify(submission))}`
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
    submission.name && `name=${formatLiteral(submission.name)}`,
    submission.tags && `tags=${formatLiteral(submission.tags)}`,
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
