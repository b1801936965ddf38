/** Submit, follow, control and read jobs. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { deleteResource, get, post, Problem, type Job, type Kind, type Result, type Submitted } from "./api";
import { storeJob, connection, missingJobs, keepJob, forgetJob, snapshot } from "./live";

export interface SubmitOptions {
  name?: string;
  tags?: readonly string[];
  priority?: "high" | "normal" | "low";
  device?: "gpu" | "cpu" | "any";
  gpu_preferred?: boolean;
}

/** Return a random idempotency key, so that a repeated request has no second effect. */
export function createIdempotencyKey(): string {
  // randomUUID requires HTTPS, which local clusters do not have.
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Status codes after which it is unknown whether the job was stored; the idempotency key makes a repetition safe. */
const UNCERTAIN_STATUSES = [0, 502, 503, 504];

/** Submit a job and return its ID. Throws a Problem whose field names the parameter. */
export async function submitJob(type: string, parameters: object, options: SubmitOptions = {}): Promise<string> {
  return (await sendSubmission(type, parameters, options)).job_id;
}

export async function sendSubmission(
  type: string,
  parameters: object,
  options: SubmitOptions = {},
): Promise<Submitted> {
  const body = { type, parameters, ...options, idempotency_key: createIdempotencyKey() };
  for (let attempt = 1; ; attempt += 1) {
    try {
      const submission = await post<Submitted>("/api/submit", body);
      keepJob(submission.job_id).catch(() => undefined);
      return submission;
    } catch (error) {
      if (!(error instanceof Problem) || !UNCERTAIN_STATUSES.includes(error.status) || attempt === 3) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * attempt));
    }
  }
}

const problems = signal<ReadonlyMap<string, Problem>>(new Map());
/** IDs of requested jobs. Requests without a response are repeated after a while. */
const requestedJobs = new Set<string>();
const failedJobs = new Set<string>();
const RETRY_MS = 5000;

function requestJob(id: string): void {
  if (requestedJobs.has(id)) return;
  requestedJobs.add(id);
  keepJob(id).catch((error: unknown) => {
    if (!(error instanceof Problem)) throw error;
    problems.value = new Map(problems.peek()).set(id, error);
    // A rejected request would be rejected again.
    if (error.status < 400 || error.status >= 500) setTimeout(() => retryRequest(id), RETRY_MS);
  });
}

function retryRequest(id: string): void {
  requestedJobs.delete(id);
  if (connection.peek() === "live") requestJob(id);
  else failedJobs.add(id);
}

// When the cluster is reachable again, repeat the failed requests.
effect(() => {
  if (connection.value !== "live") return;
  for (const id of failedJobs) requestJob(id);
  failedJobs.clear();
});

/** Return a signal with the current state of a job from the tab's stream; undefined until it is known. */
export function watchJob(id: string): ReadonlySignal<Job | undefined> {
  requestJob(id);
  return computed(() => snapshot.value.jobs.get(id)?.value);
}

/** Return a signal with the reason why a job is unknown (nonexistent, deleted or unreachable), or undefined. */
export function jobProblem(id: string): ReadonlySignal<Problem | undefined> {
  return computed(() =>
    snapshot.value.jobs.has(id) ? undefined : (missingJobs.value.get(id) ?? problems.value.get(id)),
  );
}

/**
 * Return the result with its metadata; with `partial`, the committed part. Throws Problem 409 if the job has not
 * finished.
 */
export async function loadResult<T = unknown>(
  id: string,
  partial = false,
): Promise<Omit<Result, "result"> & { result: T }> {
  return get(`/api/jobs/${id}/result`, partial ? { partial: true } : {});
}

export type JobVerb = "cancel" | "pause" | "resume" | "retry";

/** Await an action on a job, and forget the job if somebody else deleted it. */
async function forgetIfDeleted<T>(id: string, request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof Problem && error.status === 404) forgetJob(id, error);
    throw error;
  }
}

/** Cancel, pause or resume a job. Problem 409 names a state that does not allow it. */
export async function controlJob(id: string, verb: JobVerb): Promise<Job> {
  const job = await forgetIfDeleted(id, post<Job>(`/api/jobs/${id}/${verb}`));
  storeJob(job);
  return job;
}

export const cancelJob = (id: string): Promise<Job> => controlJob(id, "cancel");
export const pauseJob = (id: string): Promise<Job> => controlJob(id, "pause");
export const resumeJob = (id: string): Promise<Job> => controlJob(id, "resume");
export const retryJob = (id: string): Promise<Job> => controlJob(id, "retry");

/** Delete a finished job and its result. */
export async function deleteJob(id: string): Promise<void> {
  await forgetIfDeleted(id, deleteResource(`/api/jobs/${id}`));
  forgetJob(id, new Problem(404, "Deleted", `job ${id} was deleted`));
}

/** Return the actions that a job's state allows. */
export function allowedVerbs(job: Pick<Job, "state">): JobVerb[] {
  switch (job.state) {
    case "blocked":
      return ["cancel"];
    case "queued":
    case "running":
      return ["pause", "cancel"];
    case "paused":
      return ["resume", "cancel"];
    case "failed":
    case "cancelled":
      return ["retry"];
    default:
      return [];
  }
}

let kindsRequest: Promise<Kind[]> | undefined;

/** Return all kinds with their schemas, requested once. */
export function loadKinds(): Promise<Kind[]> {
  kindsRequest ??= get<{ kinds: Kind[] }>("/api/job-types").then((answer) => answer.kinds);
  kindsRequest.catch(() => (kindsRequest = undefined));
  return kindsRequest;
}
