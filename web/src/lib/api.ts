/** The HTTP API: JSON requests and responses, problems as errors, and the browser's login. */

import { signal } from "@preact/signals";
import { messageOf } from "./errors";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type JobState = Schemas["JobState"];
export type Jobs = Schemas["Jobs"];
export type Related = Schemas["Relations"];
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
export type Artifact = Schemas["Artifact"];
export type Unit = Schemas["Unit"];
export type Units = Schemas["Units"];
export type UnitState = Unit["state"];
export type UnitStates = Schemas["UnitStates"];
export type Session = Schemas["Session"];
export type Schedule = Schemas["Schedule"];
export type Profile = Schemas["Profile"];
export type Recording = Schemas["Recording"];
export type ServedModel = Schemas["ServedModel"];
export type Service = Schemas["Service"];
export type ServiceReplica = Schemas["ServiceReplica"];
export type WorkflowRow = Schemas["Workflow"];
export type Workflow = Schemas["Course"];
export type WorkflowRows = Schemas["Workflows"];
export type Action = Schemas["Action"];
export type ActionDetail = Schemas["ActionDetail"];
export type Complaint = Schemas["Complaint"];
export type Validation = Schemas["Validation"];

/** A kind of job in the response of GET /api/job-types. */
export type Kind = Schemas["Kind"];

/** Timeout of a request in milliseconds. */
const PATIENCE_MS = 40_000;

export type Query = Record<string, string | number | boolean | null | undefined>;

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

/** User and scopes of the login, or of anonymous access. Undefined until `askWho` has finished. */
export const who = signal<Session | undefined>(undefined);

export async function askWho(): Promise<void> {
  who.value = await ask<Session>("/api/session");
}

/** Return True if the page shows jobs of all tenants. */
export function seesAll(): boolean {
  return allIn(who.value?.scopes ?? ["admin"]);
}

function allIn(scopes: readonly string[]): boolean {
  return scopes.includes("operate") || scopes.includes("admin");
}

/** Wait until the user has logged in; the page shows the login form. */
export function signedIn(): Promise<void> {
  return new Promise((done) => {
    const stop = needsToken.subscribe((needed) => {
      if (!needed)
        queueMicrotask(() => {
          stop();
          done();
        });
    });
  });
}

/**
 * Cookie whose value proves that a request comes from a page of this origin and port, because the login cookie is not
 * enough.
 */
const CSRF = "csrf-token";

function proof(): string {
  return globalThis.localStorage?.getItem(CSRF) ?? "";
}

/** True if this browser is probably logged in. */
export const loggedIn = signal(proof() !== "");

globalThis.addEventListener?.("storage", (event) => {
  if (event.key !== CSRF) return;
  // The user logged out in another tab, so this tab must not show private data either.
  if (event.newValue === null) location.reload();
  loggedIn.value = event.newValue !== null;
  if (loggedIn.value) void takeLogin();
});

/** Use the login of another tab. */
async function takeLogin(): Promise<void> {
  try {
    const login = await ask<Session>("/api/session");
    if (seesOther(login)) location.reload();
    who.value = login;
    needsToken.value = false;
  } catch {
    location.reload(); // the user of the new login is unknown
  }
}

/** Return True if a login can see other data than the login with which this page was loaded. */
function seesOther({ tenant, scopes }: Pick<Session, "tenant" | "scopes">): boolean {
  const before = who.peek();
  return before !== undefined && (before.tenant !== tenant || allIn(before.scopes) !== allIn(scopes));
}

/** Error message of the last login attempt. */
export const loginTrouble = signal("");

/** Log in with a token or the code of a one-time link. On failure, `loginTrouble` contains the reason. */
export async function logIn(given: { token: string } | { code: string }): Promise<void> {
  try {
    const answer = await post<Schemas["LoggedIn"]>("/api/login", given);
    localStorage.setItem(CSRF, answer.csrf_token);
    loginTrouble.value = "";
    loggedIn.value = true;
    if (seesOther(answer)) location.reload();
    needsToken.value = false;
  } catch (error) {
    loginTrouble.value = (error as Error).message;
  }
}

/** Log out and show the page as an anonymous user sees it. Rejects with a Problem if the logout fails. */
export async function logOut(): Promise<void> {
  await call("/api/logout", { method: "POST" }).catch((error: unknown) => {
    if (!(error instanceof Problem && error.status === 401)) throw error;
  });
  localStorage.removeItem(CSRF);
  location.reload();
}

/** Remove the code of a one-time link from the URL's hash, which browsers do not send to servers. */
export function codeOfLink(): string {
  const code = /^#login=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1] ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

/** Return the headers for requests of a logged-in browser. */
export function authorization(): Record<string, string> {
  const known = proof();
  return known ? { "X-CSRF-Token": known } : {};
}

export function address(path: string, query: Query = {}): string {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(entries.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** Parse the problem in an error response. */
export async function problemOf(answer: Response): Promise<Problem> {
  const body = (await answer.json().catch(() => ({}))) as { title?: string; detail?: string; field?: string };
  const title = body.title ?? (answer.statusText || `Status ${answer.status}`);
  const detail = body.detail ?? `${new URL(answer.url).pathname} answered ${answer.status}`;
  if (answer.status === 401) needsToken.value = true;
  return new Problem(answer.status, title, detail, body.field, answer.headers.get("X-Request-ID") ?? undefined);
}

/** Status codes of an unhealthy or unreachable cluster. */
export const UNWELL = [0, 502, 503, 504];
let doubted = (_why: Problem): void => undefined;

/** Register a listener for responses that suggest an unhealthy cluster. */
export function onDoubt(listen: (why: Problem) => void): void {
  doubted = listen;
}

function told(problem: Problem): Problem {
  if (UNWELL.includes(problem.status)) doubted(problem);
  return problem;
}

async function call(path: string, options: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      ...options,
      cache: options.method ? "no-store" : "default",
      headers: { ...authorization(), ...options.headers },
      signal: options.signal ?? AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    const late = (error as Error).name === "TimeoutError";
    const why = late ? `no answer within ${PATIENCE_MS / 1000} s` : "the cluster does not answer";
    throw told(new Problem(0, "No answer", `${why}; see ./deploy-cluster.sh status`));
  }
  if (!answer.ok) throw told(await problemOf(answer));
  return answer;
}

/** Return the problem for a response that does not come from a coordinator, such as a proxy's error page. */
export function unreadable(path: string): Problem {
  return new Problem(0, "Unreadable", `what answers ${path} is not the cluster; look at what stands before it`);
}

async function parsed<T>(answer: Response): Promise<T> {
  try {
    return (await answer.json()) as T;
  } catch (error) {
    throw error instanceof SyntaxError ? told(unreadable(new URL(answer.url).pathname)) : error;
  }
}

/** Return the JSON of a GET request, without retries. */
export async function ask<T>(path: string): Promise<T> {
  return parsed(await call(path, {}));
}

/**
 * Return the JSON of a GET request. Repeat a request with status 202 (still computing) until `signal` aborts or two
 * minutes have passed. If a token is required, wait for the login.
 */
export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return parsed(await answered(path, query, signal));
}

/** Return the bytes of a GET request; handles status 202 like `get`. */
export async function bytes(path: string, query?: Query, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await answered(path, query, signal)).arrayBuffer();
}

/** Return the response to a GET request with its headers; handles status 202 like `get`. */
export function answered(path: string, query?: Query, signal?: AbortSignal): Promise<Response> {
  return settled(address(path, query), signal);
}

const PENDING_MS = 120_000;

async function allowed(path: string, signal?: AbortSignal): Promise<Response> {
  for (;;) {
    if (needsToken.peek()) await signedIn(); // all other requests would be refused too
    try {
      return await call(path, signal ? { signal } : {});
    } catch (error) {
      if (!(error instanceof Problem && error.status === 401)) throw error;
    }
  }
}

async function settled(path: string, signal?: AbortSignal): Promise<Response> {
  const until = Date.now() + PENDING_MS;
  for (;;) {
    const answer = await allowed(path, signal);
    if (answer.status !== 202) return answer;
    if (Date.now() > until) {
      throw new Problem(202, "Not ready", "the answer is still being computed; try again, or see the job list");
    }
    await new Promise((done) => setTimeout(done, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
  }
}

export async function post<T>(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await call(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    ...sent,
  });
  return parsed(answer);
}

/** Send a POST request with a text and return the JSON response. */
export async function postText<T>(path: string, text: string, type: string, headers = {}): Promise<T> {
  const answer = await call(path, { method: "POST", headers: { "Content-Type": type, ...headers }, body: text });
  return parsed(answer);
}

export async function del(path: string): Promise<void> {
  await call(path, { method: "DELETE" });
}
