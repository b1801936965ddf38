/** The displayed workflow: refreshed while it is active, and laid out again only when its graph changes. */

import { computed, effect, signal, untracked, type ReadonlySignal } from "@preact/signals";
import { asProblem, type Problem, type Workflow } from "../../../lib/api";
import { follow } from "../../../lib/follow";
import { connection, events } from "../../../lib/live";
import { workflowId } from "../../../lib/naming";
import type { Boxes } from "../../../graph/fold";
import { computeLayout, type Layout } from "../../../graph/layout";
import { state } from "./state";
import { boxed, critical, failure, isOver, kept, looseEdges, workflow, type Lit, type Structure } from "./workflows";

/** A graph with its layout. */
export interface Drawn {
  boxes: Boxes;
  layout: Layout;
  /** Edges between boxes that accept any outcome: `from to`. */
  loose: ReadonlySet<string>;
}

export interface WorkflowView {
  answer: ReadonlySignal<Workflow | undefined>;
  structure: ReadonlySignal<Structure | undefined>;
  drawn: ReadonlySignal<Drawn | undefined>;
  lit: ReadonlySignal<Lit | undefined>;
  problem: ReadonlySignal<Problem | undefined>;
  /** Request the workflow again after an action. */
  poke(): void;
  stop(): void;
}

/** Return True if an event concerns a workflow or one of its jobs. */
function concerns(id: string, event: { job?: string; workflow?: unknown }): boolean {
  return event.workflow === id || (event.job !== undefined && workflowId(event.job) === id);
}

export function viewOf(id: string): WorkflowView {
  const answer = signal<Workflow | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  let before: Structure | undefined;
  const structure = computed(() => {
    if (answer.value) before = kept(before, answer.value.actions);
    return before;
  });
  const ask = async (stop: AbortSignal) => {
    try {
      answer.value = await workflow(id, stop);
      problem.value = undefined;
    } catch (error) {
      if (!stop.aborted) problem.value = asProblem(error);
      throw error;
    }
  };
  const alive = () => (answer.peek() ? !isOver(answer.peek() as Workflow) : problem.peek()?.status !== 404);
  const follower = follow(ask, alive);
  let last = events.peek().at(-1)?.id;
  const stop = effect(() => {
    const fresh = events.value.slice(events.value.findIndex((event) => event.id === last) + 1);
    last = events.value.at(-1)?.id ?? last;
    if (fresh.some((event) => concerns(id, event))) follower.notify();
  });
  // Events during a disconnection were missed, so request the workflow again.
  const again = effect(() => {
    if (connection.value === "live") untracked(() => answer.peek() && follower.notify());
  });
  return {
    answer,
    structure,
    drawn: computed(() => {
      if (!structure.value) return undefined;
      const boxes = boxed(structure.value, state.fold.value, state.unfolded.value);
      return { boxes, layout: computeLayout(boxes.graph), loose: looseEdges(structure.value, boxes.boxOfVertex) };
    }),
    lit: computed(() => litOf(answer.value, structure.value)),
    problem,
    poke: follower.notify,
    stop: () => {
      stop();
      again();
      follower.stop();
    },
  };
}

/** Return the highlighted path: the path to the failure unless another was selected. */
function litOf(shown: Workflow | undefined, structure: Structure | undefined): Lit | undefined {
  if (!shown || !structure) return undefined;
  const wanted = state.way.value;
  if (wanted === "critical") return critical(structure, shown.actions, Date.now());
  return wanted === "none" ? undefined : failure(structure, shown.actions, structure.place.get(state.action.value));
}
