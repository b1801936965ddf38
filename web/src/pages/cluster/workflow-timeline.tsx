/** Bars that show when each action of a workflow ran. */

import type { Action, Workflow } from "../../lib/api";
import { formatSeconds } from "../../lib/format";
import { clusterTime, knownUntil } from "../../lib/live";
import { Button } from "../../ui/button";
import { LongTable } from "../../ui/long-table";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, numberColumn, type Column } from "../../ui/table";
import { selectAction } from "./graph";
import { state } from "./model/state";
import { placeBars, type Bar } from "./model/workflow-bars";

function createColumns(seconds: number): Column<Bar>[] {
  return [
    {
      id: "action",
      title: "action",
      cell: ({ action }) => (
        <Button class="link mono" onClick={() => selectAction(action.action_id)}>
          {action.action_id}
        </Button>
      ),
    },
    { id: "state", title: "state", cell: ({ action }) => <StateLabel state={action.state} /> },
    numberColumn("begin", "start after", ({ begin }) => formatSeconds(begin)),
    numberColumn("time", "time", ({ seconds: own }) => formatSeconds(own)),
    {
      id: "bar",
      title: (
        <span class="row soft num">
          <span class="grow">0 s</span>
          {formatSeconds(seconds)}
        </span>
      ),
      cell: ({ action, begin, seconds: own }) => (
        <span class="bar-track" aria-hidden="true">
          <span
            class={`bar ${barClass(action)}`}
            style={{ left: `${(100 * begin) / seconds}%`, width: `${(100 * own) / seconds}%` }}
          />
        </span>
      ),
    },
  ];
}

function barClass({ state: name }: Action): string {
  return name === "failed" || name === "done" ? name : "";
}

export function Timeline({ workflow }: { workflow: Workflow }) {
  const now = clusterTime(knownUntil.value);
  const { bars, seconds } = placeBars(workflow, now);
  const chosen = state.states.value ? bars.filter(({ action }) => action.state === state.states.value) : bars;
  if (!chosen.length) return <EmptyMessage title="No action has started" />;
  return (
    <div class="workflow-timeline">
      <LongTable
        label="Timeline of actions"
        columns={createColumns(seconds)}
        rows={chosen}
        rowKey={({ action }) => action.action_id}
        openKey={state.action.value}
        maxHeight={560}
      />
    </div>
  );
}
