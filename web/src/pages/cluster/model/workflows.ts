/** Workflows in the API and the page's view of their actions. Pure functions except for requests. */

import {
  get,
  post,
  postText,
  type Action,
  type ActionDetail,
  type ValidationError,
  type Validation,
  type Workflow,
  type WorkflowSummary,
  type WorkflowList,
} from "../../../lib/api";
import { createBoxes, findGroups, type Boxes } from "../../../graph/fold";
import { criticalPath, delayPath } from "../../../graph/paths";
import { buildGraph, findReachable, type Graph } from "../../../graph/structure";

/** Return the newest workflows, up to 1,000. */
export function loadWorkflows(limit: number, signal?: AbortSignal): Promise<WorkflowList> {
  return get("/api/workflows", { limit }, signal);
}

export function loadAction(id: string, action: string, signal?: AbortSignal): Promise<ActionDetail> {
  return get(`/api/workflows/${encodeURIComponent(id)}/actions/${encodeURIComponent(action)}`, {}, signal);
}

/** Return all dependencies of an action. */
export function allDependencies({ dependencies, after_any: any }: Action): readonly string[] {
  return any.length ? [...dependencies, ...any] : dependencies;
}

export function loadWorkflow(id: string, signal?: AbortSignal): Promise<Workflow> {
  return get(`/api/workflows/${encodeURIComponent(id)}`, {}, signal);
}

const YAML = "application/yaml";

export function validateWorkflow(text: string): Promise<Validation> {
  return postText("/api/workflows/validate", text, YAML);
}

/** Submit a workflow text; repetitions with the same key create no second workflow. */
export function submitWorkflow(text: string, key: string): Promise<WorkflowSummary> {
  return postText("/api/workflows", text, YAML, { "Idempotency-Key": key });
}

/** Return the offset of a validation error's position in a text. */
export function textOffset(text: string, { line, column }: Pick<ValidationError, "line" | "column">): number {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return Math.min(text.length, before + Math.min(column - 1, lines[line - 1]?.length ?? 0));
}

/** Cancel or retry a workflow; `notes` explains which actions start again. */
export function controlWorkflow(id: string, verb: "cancel" | "retry"): Promise<{ notes?: string[] }> {
  return post(`/api/workflows/${encodeURIComponent(id)}/${verb}`);
}

/** Approve or reject an action that waits for a person. */
export function decideAction(id: string, action: string, verb: "approve" | "reject"): Promise<unknown> {
  return post(`/api/workflows/${encodeURIComponent(id)}/actions/${encodeURIComponent(action)}/${verb}`);
}

const FINAL_STATES = ["done", "failed", "cancelled", "skipped"];

export function hasEnded({ state }: { state: string }): boolean {
  return FINAL_STATES.includes(state);
}

/** Return the actions that a workflow's state allows. */
export function allowedVerbs(state: string): ("cancel" | "retry")[] {
  if (state === "failed" || state === "cancelled") return ["retry"];
  return FINAL_STATES.includes(state) || state === "cancelling" ? [] : ["cancel"];
}

/** States by urgency; a state that this page does not know precedes the final states. */
const URGENCY = [
  "failed",
  "approval",
  "running",
  "finishing",
  "cancelling",
  "paused",
  "queued",
  "blocked",
  "waiting",
  "skipped",
  "cancelled",
  "done",
];

function urgencyRank(state: string): number {
  const index = URGENCY.indexOf(state);
  return index < 0 ? 8.5 : index;
}

/** Return the states with their counts, most urgent first. */
export function countStates(states: readonly string[]): [state: string, count: number][] {
  const counts = new Map<string, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].sort(([left], [right]) => urgencyRank(left) - urgencyRank(right));
}

/** Format as `3 of 9 actions done, 1 failed, 2 skipped`. */
export function describeCounts(counts: Readonly<Record<string, number>>, total: number): string {
  const rest = Object.entries(counts)
    .filter(([state, count]) => state !== "done" && count)
    .sort(([left], [right]) => urgencyRank(left) - urgencyRank(right))
    .map(([state, count]) => `${count} ${state}`);
  return [`${counts.done ?? 0} of ${total} actions done`, ...rest].join(", ");
}

// -- the graph --------------------------------------------------------------------------------------------------------

/** The constant part of a workflow, which changes only when an action expands to several. */
export interface Structure {
  actions: readonly Action[];
  graph: Graph;
  groups: Int32Array;
  vertexOf: ReadonlyMap<string, number>;
}

export function createStructure(actions: readonly Action[]): Structure {
  const graph = buildGraph(
    actions.map((action) => ({
      id: action.action_id,
      type: action.action_type,
      dependencies: allDependencies(action),
    })),
  );
  const groups = findGroups(
    graph,
    actions.map((action) => action.action_type),
  );
  return { actions, graph, groups, vertexOf: new Map(actions.map((action, vertex) => [action.action_id, vertex])) };
}

function haveSameNames(left: readonly string[], right: readonly string[]): boolean {
  return left.length === right.length && left.every((id, index) => id === right[index]);
}

function isSameAction(left: Action, right: Action): boolean {
  return (
    left.action_id === right.action_id &&
    left.action_type === right.action_type &&
    haveSameNames(left.dependencies, right.dependencies) &&
    haveSameNames(left.after_any, right.after_any)
  );
}

/** Return the structure of new responses, or the same object if nothing changed. */
export function updateStructure(previous: Structure | undefined, actions: readonly Action[]): Structure {
  const same =
    previous?.actions.length === actions.length &&
    actions.every((each, vertex) => isSameAction(previous.actions[vertex] as Action, each));
  return same && previous ? previous : createStructure(actions);
}

/**
 * Maximum size of a graph that is drawn completely; in larger ones, groups of more than `MAX_SIBLINGS` actions share a
 * box.
 */
const MAX_UNFOLDED = 60;
const MAX_SIBLINGS = 8;

/** Return the boxes of a graph; `open` contains the first action of each unfolded group. */
export function foldGraph({ graph, groups, vertexOf }: Structure, folding: boolean, open: readonly string[]): Boxes {
  const openGroups = new Set(open.map((id) => groups[vertexOf.get(id) ?? -1]));
  const maxGroup = folding && graph.size > MAX_UNFOLDED ? MAX_SIBLINGS : graph.size;
  return createBoxes(graph, groups, maxGroup, (group) => openGroups.has(group));
}

/** Return the common part of sibling names, such as `run-…`, or else the first name. */
export function commonName(names: readonly string[]): string {
  const [first = "", ...rest] = names;
  let length = first.length;
  for (const name of rest) {
    let same = 0;
    while (same < length && name[same] === first[same]) same += 1;
    length = same;
  }
  const shared = first.slice(0, length).replace(/\d+$/, "");
  return shared && rest.length ? `${shared}…` : first;
}

/** Return the edges between boxes (`from to`) for which all actions accept any outcome. */
export function findAnyOutcomeEdges({ actions, vertexOf }: Structure, boxOfVertex: Int32Array): ReadonlySet<string> {
  const anyOutcome = new Set<string>();
  if (!actions.some((action) => action.after_any.length)) return anyOutcome;
  const requireSuccess = new Set<string>();
  for (const [vertex, action] of actions.entries()) {
    const name = (id: string) => `${boxOfVertex[vertexOf.get(id) ?? -1]} ${boxOfVertex[vertex]}`;
    for (const id of action.after_any) anyOutcome.add(name(id));
    for (const id of action.dependencies) requireSuccess.add(name(id));
  }
  return new Set([...anyOutcome].filter((each) => !requireSuccess.has(each)));
}

// -- time -------------------------------------------------------------------------------------------------------------

/** Return the seconds that an action took up to its end or `now` (ms since 1970); null before its start. */
export function actionSeconds({ started, ended }: Action, now: number): number | null {
  if (!started) return null;
  const end = ended ? Date.parse(ended) : now;
  return Math.max(0, (end - Date.parse(started)) / 1000);
}

/**
 * Return the duration of each action in seconds. For actions that have not started, use the mean of their type, else of
 * all actions, else one.
 */
export function actionWeights(actions: readonly Action[], now: number): number[] {
  const sums = new Map<string, { sum: number; count: number }>();
  const add = (name: string, value: number) => {
    const before = sums.get(name) ?? { sum: 0, count: 0 };
    sums.set(name, { sum: before.sum + value, count: before.count + 1 });
  };
  const taken = actions.map((action) => actionSeconds(action, now));
  for (const [vertex, action] of actions.entries()) {
    const value = taken[vertex];
    if (value === null || value === undefined || !action.ended) continue;
    add(action.action_type, value);
    add("", value);
  }
  const usual = (type: string) => {
    const found = sums.get(type) ?? sums.get("");
    return found ? found.sum / found.count : 1;
  };
  return actions.map((action, vertex) => taken[vertex] ?? (hasEnded(action) ? 0 : usual(action.action_type)));
}

export interface HighlightedPath {
  /** Actions of the path, first to last. */
  vertices: readonly number[];
  /** Description for the line above the picture. */
  text: "critical" | "failure";
  seconds: number;
}

/** Return the critical path, which determines when the workflow finishes. */
export function criticalActions({ graph }: Structure, actions: readonly Action[], now: number): HighlightedPath {
  const own = actionWeights(actions, now);
  const { vertices, length } = criticalPath(graph, (vertex) => own[vertex] ?? 0);
  return { vertices, text: "critical", seconds: length };
}

/** Return the action that failed first; undefined if none failed. */
export function firstFailure(actions: readonly Action[]): number | undefined {
  let first: number | undefined;
  for (const [vertex, { state, ended }] of actions.entries()) {
    if (state !== "failed") continue;
    if (first === undefined || (ended ?? "9") < (actions[first]?.ended ?? "9")) first = vertex;
  }
  return first;
}

/** Return the path to the first failure or to a selected failed action. */
export function failurePath(
  { graph }: Structure,
  actions: readonly Action[],
  chosen?: number,
): HighlightedPath | undefined {
  const failed = chosen !== undefined && actions[chosen]?.state === "failed" ? chosen : firstFailure(actions);
  if (failed === undefined) return undefined;
  const end = (vertex: number) => Date.parse(actions[vertex]?.ended ?? "") || 0;
  const vertices = delayPath(graph, failed, end);
  const [first, last] = [actions[vertices[0] ?? failed], actions[failed]];
  const seconds = (Date.parse(last?.ended ?? "") - Date.parse(first?.started ?? "")) / 1000 || 0;
  return { vertices, text: "failure", seconds };
}

/** Return the IDs of the actions that were skipped because of one action. */
export function skippedActions({ graph }: Structure, actions: readonly Action[], vertex: number): string[] {
  const reachable = [...findReachable(graph, vertex, true)].flatMap((each) => actions[each] ?? []);
  return reachable.filter((action) => action.state === "skipped").map((action) => action.action_id);
}
