/** The HTTP API: JSON requests and responses, problems as errors, and the browser's login. */

import { canSubmit, KINDS } from "../kinds";
import { computed, signal } from "@preact/signals";
import { messageOf } from "./errors";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type JobState = Schemas["JobState"];
export type Jobs = Schemas["Jobs"];
export type JobRelations = Schemas["Relations"];
export type RelatedJob = Schemas["Related"];
export type Worker = Schemas["Worker"];
export type Host = Schemas["Host"];
export type Gpu = Schemas["FleetGpu"];
export type Queue = Schemas["Queue"];
export type Alert = Schemas["Alert"];
export type Status = Schemas["Status"];
export type Snapshot = Schemas["Snapshot"];
export type Submitted = Schemas["Submitted"];
export type History = Schemas["History"];
export type Bins = Schemas["Bins"];
export type Stream = Schemas["Spans"];
export type Span = Schemas["Span"];
export type Result = Schemas["Result"];
export type TenantUsage = Schemas["TenantUsage"];
export type Tenant = Schemas["Tenant"];
export type Token = Schemas["Token"];
export type Secret = Schemas["Secret"];
export type Model = Schemas["Model"];
export type Artifact = Schemas["Artifact"];
export type Unit = Schemas["Unit"];
export type Units = Schemas["Units"];
export type UnitState = Unit["state"];
export type UnitStates = Schemas["UnitStates"];
export type UnitExcerpt = Schemas["UnitExcerpt"];
export type LogExcerpts = Schemas["LogExcerpts"];
export type Session = Schemas["Session"];
export type Schedule = Schemas["Schedule"];
export type Profile = Schemas["Profile"];
export type Recording = Schemas["Recording"];
export type ServedModel = Schemas["ServedModel"];
export type Service = Schemas["Service"];
export type ServiceReplica = Schemas["ServiceReplica"];
export type WorkflowSummary = Schemas["Workflow"];
export type Workflow = Schemas["Course"];
export type WorkflowList = Schemas["Workflows"];
export type Action = Schemas["Action"];
export type ActionDetail = Schemas["ActionDetail"];
export type ValidationError = Schemas["Complaint"];
export type Validation = Schemas["Validation"];

/** A kind of job in the response of GET /api/job-types. */
export type Kind = Schemas["Kind"];

/** Timeout of a request in milliseconds. */
const REQUEST_TIMEOUT_MS = 40_000;

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

/** An error response of the API (RFC 9457). Status 0 means that there was no response. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly field?: string,
    /** Request ID, which identifies the request in logs. */
    readonly request?: string,
  ) {
    super(detail);
    this.name = "Problem";
  }
}

/** Convert any error to a Problem for display. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "Failed", messageOf(error));
}

/** True after a request failed because a token is required. The page then shows the login form. */
export const needsToken = signal(false);

/** User and scopes of the login, or of anonymous access. Undefined until `loadSession` has finished. */
export const session = signal<Session | undefined>(undefined);

export async function loadSession(): Promise<void> {
  session.value = await getOnce<Session>("/api/session");
}

/** Return True if the page shows jobs of all tenants. */
/** Return True if this user may submit jobs of a kind. Programs need a login, even if other jobs do not. */
export function maySubmit(kind: string): boolean {
  const { scopes, token_id: id } = session.value ?? {};
  return scopes !== undefined && canSubmit(kind, scopes) && !(KINDS[kind]?.hasPrograms && id === null);
}

export function canSeeAllTenants(): boolean {
  return includeAllTenants(session.value?.scopes ?? ["admin"]);
}

/** Return True if the user can call routes that need one of these scopes. */
export function hasScope(...scopes: string[]): boolean {
  const own = session.value?.scopes ?? ["admin"];
  return own.includes("admin") || scopes.some((scope) => own.includes(scope));
}

function includeAllTenants(scopes: readonly string[]): boolean {
  return scopes.includes("operate") || scopes.includes("admin");
}

/** True for a token that can only query models. */
export const canOnlyInfer = computed(() => {
  const scopes = session.value?.scopes ?? ["read"];
  return scopes.includes("infer") && !scopes.includes("read") && !scopes.includes("admin");
});

/** Wait until the user has logged in; the page shows the login form. */
export function waitForLogin(): Promise<void> {
  return new Promise((resolve) => {
    const stop = needsToken.subscribe((isNeeded) => {
      if (!isNeeded)
        queueMicrotask(() => {
          stop();
          resolve();
        });
    });
  });
}

/**
 * Cookie whose value proves that a request comes from a page of this origin and port, because the login cookie is not
 * enough.
 */
const CSRF_KEY = "csrf-token";

function readCsrfToken(): string {
  return globalThis.localStorage?.getItem(CSRF_KEY) ?? "";
}

/** True if this browser is probably logged in. */
export const isLoggedIn = signal(readCsrfToken() !== "");

globalThis.addEventListener?.("storage", (event) => {
  if (event.key !== CSRF_KEY) return;
  // The user logged out in another tab, so this tab must not show private data either.
  if (event.newValue === null) location.reload();
  isLoggedIn.value = event.newValue !== null;
  if (isLoggedIn.value) void adoptLogin();
});

/** Use the login of another tab. */
async function adoptLogin(): Promise<void> {
  try {
    const login = await getOnce<Session>("/api/session");
    if (canSeeOtherData(login)) location.reload();
    session.value = login;
    needsToken.value = false;
  } catch {
    location.reload(); // the user of the new login is unknown
  }
}

/** Return True if a login can see other data than the login with which this page was loaded. */
function canSeeOtherData({ tenant, scopes }: Pick<Session, "tenant" | "scopes">): boolean {
  const current = session.peek();
  return (
    current !== undefined &&
    (current.tenant !== tenant || includeAllTenants(current.scopes) !== includeAllTenants(scopes))
  );
}

/** Error message of the last login attempt. */
export const loginError = signal("");

/** Log in with a token or the code of a one-time link. On failure, `loginError` contains the reason. */
export async function logIn(credentials: { token: string } | { code: string }): Promise<void> {
  try {
    const login = await post<Schemas["LoggedIn"]>("/api/login", credentials);
    localStorage.setItem(CSRF_KEY, login.csrf_token);
    loginError.value = "";
    isLoggedIn.value = true;
    if (canSeeOtherData(login)) location.reload();
    needsToken.value = false;
  } catch (error) {
    loginError.value = (error as Error).message;
  }
}

/** Log out and show the page as an anonymous user sees it. Rejects with a Problem if the logout fails. */
export async function logOut(): Promise<void> {
  await sendRequest("/api/logout", { method: "POST" }).catch((error: unknown) => {
    if (!(error instanceof Problem && error.status === 401)) throw error;
  });
  localStorage.removeItem(CSRF_KEY);
  location.reload();
}

/** Remove the code of a one-time link from the URL's hash, which browsers do not send to servers. */
export function takeLinkCode(): string {
  const code = /^#login=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1] ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

// A one-time link that is opened in a tab of the same page changes only the hash.
globalThis.addEventListener?.("hashchange", (event) => {
  if (!location.hash.startsWith("#login=")) return;
  event.stopImmediatePropagation(); // other listeners would replace the hash
  location.reload();
});

/** Return the headers for requests of a logged-in browser. */
export function authorizationHeaders(): Record<string, string> {
  const csrfToken = readCsrfToken();
  return csrfToken ? { "X-CSRF-Token": csrfToken } : {};
}

export function buildUrl(path: string, query: Query = {}): string {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const pairs = entries.flatMap(([name, value]) => [value].flat().map((each) => [name, String(each)]));
  const text = new URLSearchParams(pairs).toString();
  return text ? `${path}?${text}` : path;
}

/** Parse the problem in an error response. */
export async function parseProblem(response: Response): Promise<Problem> {
  const body = (await response.json().catch(() => ({}))) as { title?: string; detail?: string; field?: string };
  const title = body.title ?? (response.statusText || `Status ${response.status}`);
  const detail = body.detail ?? `${new URL(response.url).pathname} answered ${response.status}`;
  if (response.status === 401) needsToken.value = true;
  return new Problem(response.status, title, detail, body.field, response.headers.get("X-Request-ID") ?? undefined);
}

/** Status codes of an unhealthy or unreachable cluster. */
export const UNHEALTHY_STATUSES = [0, 502, 503, 504];
let suspicionListener = (_why: Problem): void => undefined;

/** Register a listener for responses that suggest an unhealthy cluster. */
export function onSuspicion(listener: (problem: Problem) => void): void {
  suspicionListener = listener;
}

function reportSuspicion(problem: Problem): Problem {
  if (UNHEALTHY_STATUSES.includes(problem.status)) suspicionListener(problem);
  return problem;
}

async function sendRequest(path: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...options,
      cache: options.method ? "no-store" : "default",
      headers: { ...authorizationHeaders(), ...options.headers },
      signal: options.signal ?? AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    const isTimeout = (error as Error).name === "TimeoutError";
    const reason = isTimeout ? `no answer within ${REQUEST_TIMEOUT_MS / 1000} s` : "the cluster does not answer";
    throw reportSuspicion(new Problem(0, "No answer", `${reason}; see ./deploy-cluster.sh status`));
  }
  if (!response.ok) throw reportSuspicion(await parseProblem(response));
  return response;
}

/** Return the problem for a response that does not come from a coordinator, such as a proxy's error page. */
export function unreadableResponse(path: string): Problem {
  return new Problem(0, "Unreadable", `what answers ${path} is not the cluster; look at what stands before it`);
}

async function parseJson<T>(response: Response): Promise<T> {
  try {
    return (await response.json()) as T;
  } catch (error) {
    throw error instanceof SyntaxError ? reportSuspicion(unreadableResponse(new URL(response.url).pathname)) : error;
  }
}

/** Return the JSON of a GET request, without retries. */
export async function getOnce<T>(path: string): Promise<T> {
  return parseJson(await sendRequest(path, {}));
}

/**
 * Return the JSON of a GET request. Repeat a request with status 202 (still computing) until `signal` aborts or two
 * minutes have passed. If a token is required, wait for the login.
 */
export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return parseJson(await getResponse(path, query, signal));
}

/** Return the bytes of a GET request; handles status 202 like `get`. */
export async function getBytes(path: string, query?: Query, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await getResponse(path, query, signal)).arrayBuffer();
}

/** Return the response to a GET request with its headers; handles status 202 like `get`. */
export function getResponse(path: string, query?: Query, signal?: AbortSignal): Promise<Response> {
  return waitUntilReady(buildUrl(path, query), signal);
}

const PENDING_MS = 120_000;

async function requestWithLogin(path: string, signal?: AbortSignal): Promise<Response> {
  for (;;) {
    if (needsToken.peek()) await waitForLogin(); // all other requests would be refused too
    try {
      return await sendRequest(path, signal ? { signal } : {});
    } catch (error) {
      if (!(error instanceof Problem && error.status === 401)) throw error;
    }
  }
}

async function waitUntilReady(path: string, signal?: AbortSignal): Promise<Response> {
  const deadline = Date.now() + PENDING_MS;
  for (;;) {
    const response = await requestWithLogin(path, signal);
    if (response.status !== 202) return response;
    if (Date.now() > deadline) {
      throw new Problem(202, "Not ready", "the answer is still being computed; try again, or see the job list");
    }
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
  }
}

export function post<T>(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  return sendJson("POST", path, body, headers);
}

export function put<T>(path: string, body: unknown): Promise<T> {
  return sendJson("PUT", path, body);
}

async function sendJson<T>(method: string, path: string, body?: unknown, headers = {}): Promise<T> {
  const bodyOption = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await sendRequest(path, {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    ...bodyOption,
  });
  return parseJson(response);
}

/** Send a POST request with a text and return the JSON response. */
export async function postText<T>(path: string, text: string, type: string, headers = {}): Promise<T> {
  const response = await sendRequest(path, {
    method: "POST",
    headers: { "Content-Type": type, ...headers },
    body: text,
  });
  return parseJson(response);
}

export async function deleteResource(path: string): Promise<void> {
  await sendRequest(path, { method: "DELETE" });
}
