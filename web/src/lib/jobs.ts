/** Submit, follow, control and read jobs. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { del, get, post, Problem, type Job, type Kind, type Result, type Submitted } from "./api";
import { adopt, connection, gone, keep, lose, snapshot } from "./live";

export interface SubmitOptions {
  priority?: "high" | "normal" | "low";
  device?: "gpu" | "cpu" | "any";
  gpu_preferred?: boolean;
}

/** Return a random idempotency key, so that a repeated request has no second effect. */
export function key(): string {
  // randomUUID requires HTTPS, which local clusters do not have.
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Status codes after which it is unknown whether the job was stored; the idempotency key makes a repetition safe. */
const UNSURE = [0, 502, 503, 504];

/** Submit a job and return its ID. Throws a Problem whose field names the parameter. */
export async function submit(type: string, parameters: object, options: SubmitOptions = {}): Promise<string> {
  return (await submitted(type, parameters, options)).job_id;
}

export async function submitted(type: string, parameters: object, options: SubmitOptions = {}): Promise<Submitted> {
  const body = { type, parameters, ...options, idempotency_key: key() };
  for (let tries = 1; ; tries += 1) {
    try {
      const answer = await post<Submitted>("/api/submit", body);
      keep(answer.job_id).catch(() => undefined);
      return answer;
    } catch (error) {
      if (!(error instanceof Problem) || !UNSURE.includes(error.status) || tries === 3) throw error;
      await new Promise((done) => setTimeout(done, 1000 * tries));
    }
  }
}

const failures = signal<ReadonlyMap<string, Problem>>(new Map());
/** IDs of requested jobs. Requests without a response are repeated after a while. */
const asked = new Set<string>();
const unsure = new Set<string>();
const AGAIN_MS = 5000;

function lookUp(id: string): void {
  if (asked.has(id)) return;
  asked.add(id);
  keep(id).catch((error: unknown) => {
    if (!(error instanceof Problem)) throw error;
    failures.value = new Map(failures.peek()).set(id, error);
    // A rejected request would be rejected again.
    if (error.status < 400 || error.status >= 500) setTimeout(() => lookAgain(id), AGAIN_MS);
  });
}

function lookAgain(id: string): void {
  asked.delete(id);
  if (connection.peek() === "live") lookUp(id);
  else unsure.add(id);
}

// When the cluster is reachable again, repeat the failed requests.
effect(() => {
  if (connection.value !== "live") return;
  for (const id of unsure) lookUp(id);
  unsure.clear();
});

/** Return a signal with the current state of a job from the tab's stream; undefined until it is known. */
export function watch(id: string): ReadonlySignal<Job | undefined> {
  lookUp(id);
  return computed(() => snapshot.value.jobs.get(id)?.value);
}

/** Return a signal with the reason why a job is unknown (nonexistent, deleted or unreachable), or undefined. */
export function trouble(id: string): ReadonlySignal<Problem | undefined> {
  return computed(() => (snapshot.value.jobs.has(id) ? undefined : (gone.value.get(id) ?? failures.value.get(id))));
}

/**
 * Return the result with its metadata; with `partial`, the committed part. Throws Problem 409 if the job has not
 * finished.
 */
export async function result<T = unknown>(
  id: string,
  partial = false,
): Promise<Omit<Result, "result"> & { result: T }> {
  return get(`/api/jobs/${id}/result`, partial ? { partial: true } : {});
}

export type Verb = "cancel" | "pause" | "resume" | "retry";

/** Await an action on a job, and forget the job if somebody else deleted it. */
async function onto<T>(id: string, act: Promise<T>): Promise<T> {
  try {
    return await act;
  } catch (error) {
    if (error instanceof Problem && error.status === 404) lose(id, error);
    throw error;
  }
}

/** Cancel, pause or resume a job. Problem 409 names a state that does not allow it. */
export async function steer(id: string, verb: Verb): Promise<Job> {
  const job = await onto(id, post<Job>(`/api/jobs/${id}/${verb}`));
  adopt(job);
  return job;
}

export const cancel = (id: string): Promise<Job> => steer(id, "cancel");
export const pause = (id: string): Promise<Job> => steer(id, "pause");
export const resume = (id: string): Promise<Job> => steer(id, "resume");
export const retry = (id: string): Promise<Job> => steer(id, "retry");

/** Delete a finished job and its result. */
export async function remove(id: string): Promise<void> {
  await onto(id, del(`/api/jobs/${id}`));
  lose(id, new Problem(404, "Deleted", `job ${id} was deleted`));
}

/** Return the actions that a job's state allows. */
export function verbs(job: Pick<Job, "state">): Verb[] {
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

let listed: Promise<Kind[]> | undefined;

/** Return all kinds with their schemas, requested once. */
export function kinds(): Promise<Kind[]> {
  listed ??= get<{ kinds: Kind[] }>("/api/job-types").then((answer) => answer.kinds);
  listed.catch(() => (listed = undefined));
  return listed;
}
