/** Services in the API and descriptions of their state. Pure functions except for requests. */

import {
  deleteResource,
  get,
  post,
  session,
  type ServedModel,
  type Service,
  type ServiceReplica,
} from "../../../lib/api";
import { formatInteger, formatSeconds } from "../../../lib/format";

export type ServiceVerb = "start" | "restart" | "stop";

/** Maximum number of replicas of a service. */
export const MAX_REPLICAS = 100;

function servicePath(name: string): string {
  return `/api/services/${encodeURIComponent(name)}`;
}

export async function loadServices(signal?: AbortSignal): Promise<readonly Service[]> {
  return (await get<{ services: readonly Service[] }>("/api/services", {}, signal)).services;
}

export function loadService(name: string, signal?: AbortSignal): Promise<Service> {
  return get(servicePath(name), {}, signal);
}

/** Return the models that a user with only the scope `infer` can query. */
export async function loadModels(signal?: AbortSignal): Promise<readonly ServedModel[]> {
  return (await get<{ data: readonly ServedModel[] }>("/v1/models", {}, signal)).data;
}

/** Return the selected model, or else the first ready model, or else the first one. */
export function selectModel(list: readonly ServedModel[], name: string): ServedModel | undefined {
  return list.find(({ id }) => id === name) ?? list.find(({ ready }) => ready) ?? list[0];
}

export function controlService(name: string, verb: ServiceVerb): Promise<Service> {
  return post(`${servicePath(name)}/${verb === "stop" ? "stop" : "restart"}`);
}

export function scaleService(name: string, replicas: number): Promise<Service> {
  return post(`${servicePath(name)}/scale`, { replicas });
}

/** Return a link to a service's page under its own host name, which logs this browser in. */
export async function requestPageLink(name: string): Promise<string> {
  return (await post<{ url: string }>(`${servicePath(name)}/open`)).url;
}

/** Return the memory of a replica of a service that does not exist yet, in words. */
export async function estimateService(service: unknown): Promise<string> {
  const { memory, engine } = await post<{ memory: string | null; engine: string }>("/api/services/estimate", service);
  return memory ? `Memory of a replica: ${memory}.` : `The memory that ${engine} needs is unknown.`;
}

export function deleteService(name: string): Promise<void> {
  return deleteResource(servicePath(name));
}

/** Return a service's model name; full artifact IDs are shortened to a prefix that the API accepts. */
export function formatModel(model: string | null): string {
  return /^[0-9a-f]{64}$/.test(model ?? "") ? (model ?? "").slice(0, 12) : (model ?? "");
}

/** Return True if the user has a scope. */
export function hasScope(scope: "run" | "infer" | "admin"): boolean {
  const scopes = session.value?.scopes ?? [];
  return scopes.includes("admin") || scopes.includes(scope);
}

/** Return the actions on a service, in the order of their buttons. */
export function allowedServiceVerbs({ state }: Pick<Service, "state">): ServiceVerb[] {
  if (state === "stopped" || state === "stopping") return ["start"];
  return state === "asleep" ? ["start", "stop"] : ["restart", "stop"];
}

/** Return the limits for automatic scaling of a service; equal limits mean manual scaling. */
export function scalingLimits({ asked }: Pick<Service, "asked">): { min: number; max: number } {
  const load = (asked as { autoscale?: { min: number; max: number } | null } | undefined)?.autoscale;
  return { min: load?.min ?? 0, max: load?.max ?? MAX_REPLICAS };
}

/** Format as `2 of 3 ready`. */
export function formatReadiness({ ready, replicas }: Pick<Service, "ready" | "replicas">): string {
  return `${formatInteger(ready)} of ${formatInteger(replicas)} ready`;
}

function describeDeaths({ name, failures, last_failure: failure, next_start: next }: Service, now: number): string {
  const left = next ? (Date.parse(next) - now) / 1000 : 0;
  const count = failures === 1 ? "The last replica died" : `The last ${formatInteger(failures)} replicas died`;
  const start = `The next one starts ${left >= 1 ? `in ${formatSeconds(left)}` : "now"}`;
  return `${count}: ${failure ?? "unknown reason"}. ${start}. See: cluster service logs ${name}`;
}

function explainWait({ running }: Service): string {
  const one = running.find(({ state }) => state === "unhealthy") ?? running.find(({ because }) => because);
  return one?.because ? `A replica is ${one.state}${one.state === "ready" ? ", " : ": "}${one.because}.` : "";
}

/** Explain a service's state and the next step; empty if all replicas answer. `now` is cluster time in ms. */
export function explainState(service: Service, now: number): string {
  const { state, ready, replicas, failures, running } = service;
  if (state === "stopped") return "Requests are refused until the service is started.";
  if (state === "stopping") return "Its replicas stop when they have answered their current requests.";
  if (state === "asleep") return "The service has no replica. The next request starts a replica and waits for it.";
  if (failures) return describeDeaths(service, now);
  if (ready >= replicas && running.every(({ state: each }) => each === "ready" || each === "stopping")) {
    return explainWait({ ...service, running: running.filter(({ state: each }) => each === "ready") });
  }
  return explainWait(service) || (running.length ? "" : "The first replica starts within about two seconds.");
}

/** Describe what happens to requests when replicas stop. */
export function describeDrain(service: Pick<Service, "requests" | "asked">): string {
  const patience = Number((service.asked as { request_timeout_seconds?: number } | undefined)?.request_timeout_seconds);
  const limit = formatSeconds(patience || 300);
  if (!service.requests) return "The service has no active request.";
  const many = service.requests === 1 ? "1 request" : `${formatInteger(service.requests)} requests`;
  return `The service has ${many} now. Replicas answer them before they stop; answers over ${limit} are cut off.`;
}

/** Return True if a replica may still write to its log. */
export function canWriteLog({ state }: Pick<ServiceReplica, "state">): boolean {
  return state !== "waiting" && state !== "dead";
}
