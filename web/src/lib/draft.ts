/** Contents of the form for a new job. Pure functions. */

import type { Job } from "./api";

export interface Draft {
  kind: string;
  /** Title of the job; empty for the title that the cluster derives from the parameters. */
  name: string;
  tags: readonly string[];
  parameters: Record<string, unknown>;
  priority: "high" | "normal" | "low";
  device: "any" | "cpu" | "gpu";
}

export const EMPTY_DRAFT: Draft = { kind: "", name: "", tags: [], parameters: {}, priority: "normal", device: "any" };

/** Return a draft with the name, the tags and the parameters of an existing job. */
export function createDraft(job: Job): Draft {
  const set = Object.entries(job.parameters).filter(([, value]) => value !== null);
  const device = (["cpu", "gpu", "any"] as const).find((each) => each === job.device) ?? "any";
  const priority = (["high", "normal", "low"] as const).find((each) => each === job.priority) ?? "normal";
  return {
    kind: job.type,
    name: job.name ?? "",
    tags: job.tags ?? [],
    parameters: Object.fromEntries(set),
    device,
    priority,
  };
}
