/** A workflow that is looked at: asked for again while it lives, and laid out anew only when its graph has changed. */

import { computed, effect, signal, untracked, type ReadonlySignal } from "@preact/signals";
import { asProblem, type Problem, type Workflow } from "../../../lib/api";
import { follow } from "../../../lib/follow";
import { connection, events } from "../../../lib/live";
import { workflowIdOf } from "../../../lib/naming";
import type { Boxes } from "../../../graph/fold";
import { layoutOf, type Layout } from "../../../graph/layout";
import { state } from "./state";
import { boxed, critical, failure, isOver, kept, looseEdges, workflow, type Lit, type Structure } from "./workflows";

/** A graph as it is drawn. */
export interface Drawn {
  boxes: Boxes;
  layout: Layout;
  /** Edges between boxes that ask for an end only: `from to`. */
  loose: ReadonlySet<string>;
}

export interface WorkflowView {
  answer: ReadonlySignal<Workflow | undefined>;
  structure: ReadonlySignal<Structure | undefined>;
  drawn: ReadonlySignal<Drawn | undefined>;
  lit: ReadonlySignal<Lit | undefined>;
  problem: ReadonlySignal<Problem | undefined>;
  /** Asks again: something was done about it. */
  poke(): void;
  stop(): void;
}

/** Whether an event is about a workflow or a job of it. */
function concerns(id: string, event: { job?: string; workflow?: unknown }): boolean {
  return event.workflow === id || (event.job !== undefined && workflowIdOf(event.job) === id);
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
    if (fresh.some((event) => concerns(id, event))) follower.poke();
  });
  // What happened while the page was not live was not heard.
  const again = effect(() => {
    if (connection.value === "live") untracked(() => answer.peek() && follower.poke());
  });
  return {
    answer,
    structure,
    drawn: computed(() => {
      if (!structure.value) return undefined;
      const boxes = boxed(structure.value, state.fold.value, state.unfolded.value);
      return { boxes, layout: layoutOf(boxes.graph), loose: looseEdges(structure.value, boxes.of) };
    }),
    lit: computed(() => litOf(answer.value, structure.value)),
    problem,
    poke: follower.poke,
    stop: () => {
      stop();
      again();
      follower.stop();
    },
  };
}

/** The way that the page shows: to the failure unless another was chosen. */
function litOf(shown: Workflow | undefined, structure: Structure | undefined): Lit | undefined {
  if (!shown || !structure) return undefined;
  const wanted = state.way.value;
  if (wanted === "critical") return critical(structure, shown.actions, Date.now());
  return wanted === "none" ? undefined : failure(structure, shown.actions, structure.place.get(state.action.value));
}
