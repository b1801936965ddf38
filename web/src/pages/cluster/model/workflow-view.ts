/** The displayed workflow: refreshed while it is active, and laid out again only when its graph changes. */

import { computed, effect, signal, untracked, type ReadonlySignal } from "@preact/signals";
import { asProblem, type Problem, type Workflow } from "../../../lib/api";
import { follow } from "../../../lib/follow";
import { connection, events } from "../../../lib/live";
import { workflowId } from "../../../lib/naming";
import type { Boxes } from "../../../graph/fold";
import { computeLayout, type Layout } from "../../../graph/layout";
import { state } from "./state";
import {
  foldGraph,
  criticalActions,
  failurePath,
  hasEnded,
  updateStructure,
  findAnyOutcomeEdges,
  loadWorkflow,
  type HighlightedPath,
  type Structure,
} from "./workflows";

/** A graph with its layout. */
export interface GraphLayout {
  boxes: Boxes;
  layout: Layout;
  /** Edges between boxes that accept any outcome: `from to`. */
  anyOutcomeEdges: ReadonlySet<string>;
}

export interface WorkflowView {
  workflow: ReadonlySignal<Workflow | undefined>;
  structure: ReadonlySignal<Structure | undefined>;
  graphLayout: ReadonlySignal<GraphLayout | undefined>;
  path: ReadonlySignal<HighlightedPath | undefined>;
  problem: ReadonlySignal<Problem | undefined>;
  /** Request the workflow again after an action. */
  refresh(): void;
  stop(): void;
}

/** Return True if an event concerns a workflow or one of its jobs. */
function concernsWorkflow(id: string, event: { job?: string; workflow?: unknown }): boolean {
  return event.workflow === id || (event.job !== undefined && workflowId(event.job) === id);
}

export function followWorkflow(id: string): WorkflowView {
  const current = signal<Workflow | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  let previous: Structure | undefined;
  const structure = computed(() => {
    if (current.value) previous = updateStructure(previous, current.value.actions);
    return previous;
  });
  const load = async (stop: AbortSignal) => {
    try {
      current.value = await loadWorkflow(id, stop);
      problem.value = undefined;
    } catch (error) {
      if (!stop.aborted) problem.value = asProblem(error);
      throw error;
    }
  };
  const isActive = () => (current.peek() ? !hasEnded(current.peek() as Workflow) : problem.peek()?.status !== 404);
  const follower = follow(load, isActive);
  let last = events.peek().at(-1)?.id;
  const stop = effect(() => {
    const newEvents = events.value.slice(events.value.findIndex((event) => event.id === last) + 1);
    last = events.value.at(-1)?.id ?? last;
    if (newEvents.some((event) => concernsWorkflow(id, event))) follower.notify();
  });
  // Events during a disconnection were missed, so request the workflow again.
  const stopReconnect = effect(() => {
    if (connection.value === "live") untracked(() => current.peek() && follower.notify());
  });
  return {
    workflow: current,
    structure,
    graphLayout: computed(() => {
      if (!structure.value) return undefined;
      const boxes = foldGraph(structure.value, state.fold.value, state.unfolded.value);
      return {
        boxes,
        layout: computeLayout(boxes.graph),
        anyOutcomeEdges: findAnyOutcomeEdges(structure.value, boxes.boxOfVertex),
      };
    }),
    path: computed(() => highlightedPath(current.value, structure.value)),
    problem,
    refresh: follower.notify,
    stop: () => {
      stop();
      stopReconnect();
      follower.stop();
    },
  };
}

/** Return the highlighted path: the path to the failure unless another was selected. */
function highlightedPath(current: Workflow | undefined, structure: Structure | undefined): HighlightedPath | undefined {
  if (!current || !structure) return undefined;
  const choice = state.way.value;
  if (choice === "critical") return criticalActions(structure, current.actions, Date.now());
  return choice === "none"
    ? undefined
    : failurePath(structure, current.actions, structure.vertexOf.get(state.action.value));
}
