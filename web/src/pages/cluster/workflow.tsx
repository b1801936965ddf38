/** One workflow: its progress, its graph or list of actions, and one action in detail. */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { jobAddress } from "../../kinds";
import type { Problem, Action, ActionDetail, Workflow } from "../../lib/api";
import { formatCount, formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { clusterTime, connection, knownUntil } from "../../lib/live";
import { watchJob } from "../../lib/jobs";
import { formatTimestamp } from "../../lib/naming";
import { typedParameters } from "../../lib/summary";
import { Button, TextButton } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { askConfirmation } from "../../ui/dialog";
import { Outline } from "../../ui/outline";
import { ProgressBar } from "../../ui/progress";
import { LongTable } from "../../ui/long-table";
import { StateLabel } from "../../ui/state";
import { LoadingRows, type Column, numberColumn } from "../../ui/table";
import { runAction, showError, showToast } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { selectAction, GraphView } from "./graph";
import { Timeline } from "./workflow-timeline";
import { truncate } from "./model/truncate";
import { openService, openWorkflow, state } from "./model/state";
import { followWorkflow, type WorkflowView } from "./model/workflow-view";
import {
  loadAction,
  decideAction,
  countStates,
  firstFailure,
  hasEnded,
  allowedVerbs,
  actionSeconds,
  skippedActions,
  controlWorkflow,
  allDependencies,
  type Structure,
} from "./model/workflows";

export function WorkflowDetails({ id }: { id: string }) {
  const view = useMemo(() => followWorkflow(id), [id]);
  useEffect(() => view.stop, [view]);
  const [workflow, problem] = [view.workflow.value, view.problem.value];
  return (
    <section class="workflow stack" aria-label={`Workflow ${id}`}>
      <nav>
        <TextButton onClick={() => openWorkflow("")}>All workflows</TextButton>
      </nav>
      {workflow && view.structure.value ? (
        <WorkflowBody view={view} workflow={workflow} structure={view.structure.value} problem={problem} />
      ) : problem ? (
        <MissingWorkflow id={id} problem={problem} view={view} />
      ) : (
        <LoadingRows rows={8} />
      )}
    </section>
  );
}

function MissingWorkflow({ id, problem, view }: { id: string; problem: Problem; view: WorkflowView }) {
  if (problem.status !== 404)
    return <ErrorMessage subject={`Workflow ${id}`} problem={problem} onRetry={view.refresh} />;
  return (
    <p class="trouble" role="alert">
      There is no workflow {id}, or it belongs to another tenant.
    </p>
  );
}

interface Props {
  view: WorkflowView;
  workflow: Workflow;
  structure: Structure;
}

function WorkflowBody({ view, workflow, structure, problem }: Props & { problem: Problem | undefined }) {
  const look = state.look.value;
  const drawn = view.graphLayout.value;
  const action = workflow.actions[structure.vertexOf.get(state.action.value) ?? -1];
  useLayoutEffect(
    () =>
      bindShortcuts({
        L: {
          text: "show the actions as a graph, a list or a timeline",
          run: () => (state.look.value = LOOKS[(LOOKS.indexOf(look) + 1) % LOOKS.length] ?? "graph"),
        },
        E: {
          text: "open the first failed action",
          run: () => selectAction(workflow.actions[firstFailure(workflow.actions) ?? -1]?.action_id ?? ""),
        },
        c: {
          text: "cancel the workflow, after a confirmation",
          run: () => void controlWithConfirmation(view, workflow, "cancel"),
        },
        r: {
          text: "retry the failed actions of the workflow",
          run: () => void controlWithConfirmation(view, workflow, "retry"),
        },
        Escape: {
          text: "close the action, then the workflow",
          run: () => (state.action.peek() ? selectAction("") : openWorkflow("")),
        },
      }),
    [workflow],
  );
  return (
    <>
      <Heading view={view} workflow={workflow} />
      {problem && connection.value === "live" && <ErrorMessage subject="Workflow" problem={problem} />}
      {workflow.waiting_because && <p>Waits: {workflow.waiting_because}.</p>}
      <Failure workflow={workflow} structure={structure} />
      <WorkflowServices workflow={workflow} />
      <Approvals view={view} workflow={workflow} />
      <GraphTools view={view} workflow={workflow} />
      <div class={`workflow-body ages ${action ? "with-drawer" : ""}`}>
        <div class="list">
          {look === "timeline" ? (
            <Timeline workflow={workflow} />
          ) : look === "list" || !drawn ? (
            <ActionList workflow={workflow} />
          ) : (
            <GraphView view={view} workflow={workflow} structure={structure} graphLayout={drawn} />
          )}
        </div>
        {action && (
          <ActionPanel key={action.action_id} view={view} workflow={workflow} structure={structure} action={action} />
        )}
      </div>
    </>
  );
}

// -- above the graph --------------------------------------------------------------------------------------------------

const VERB_LABELS = { cancel: "Cancel", retry: "Retry" } as const;

async function controlWithConfirmation(
  view: WorkflowView,
  workflow: Workflow,
  verb: "cancel" | "retry",
): Promise<void> {
  if (!allowedVerbs(workflow.state).includes(verb))
    return showToast(`${VERB_LABELS[verb]}: the workflow is ${workflow.state}`);
  const question = {
    title: `Cancel workflow ${workflow.name}?`,
    text: "Its jobs are cancelled, and no further action starts. Retry continues from there.",
    buttonLabel: "Cancel workflow",
    isDangerous: true,
  };
  if (verb === "cancel" && !(await askConfirmation(question))) return;
  try {
    const { notes = [] } = await controlWorkflow(workflow.workflow_id, verb);
    const message = ["Retried: the workflow continues from the failed actions", ...notes.slice(0, 3)].join(". ");
    showToast(verb === "cancel" ? "Cancel requested" : message);
  } catch (error) {
    showError(`${VERB_LABELS[verb]} ${workflow.name}`, error);
  }
  view.refresh();
}

function Heading({ view, workflow }: { view: WorkflowView; workflow: Workflow }) {
  const done = workflow.counts.done ?? 0;
  const end = workflow.ended ? Date.parse(workflow.ended) : clusterTime(knownUntil.value);
  return (
    <>
      <div class="row">
        <h2>{workflow.name}</h2>
        <StateLabel state={workflow.state} />
        <span class="mono soft">{workflow.workflow_id}</span>
        <span class="soft" title={workflow.created}>
          since {formatTimestamp(workflow.created)},{" "}
          {formatSeconds(Math.max(0, end - Date.parse(workflow.created)) / 1000)}
        </span>
        <span class="grow" />
        {allowedVerbs(workflow.state).map((verb) => (
          <Button
            key={verb}
            class={verb === "cancel" ? "danger" : "primary"}
            onClick={() => void controlWithConfirmation(view, workflow, verb)}
          >
            {VERB_LABELS[verb]}
          </Button>
        ))}
      </div>
      {workflow.description && (
        <p class="soft" title={workflow.description}>
          {truncate(workflow.description)}
        </p>
      )}
      <div class="progress wide">
        <ProgressBar ratio={workflow.total ? done / workflow.total : 1} label={`workflow ${workflow.name}`} />
        <span class="num">{formatPercent(workflow.total ? done / workflow.total : 1)}</span>
        <span class="num soft">
          {formatInteger(done)} of {formatCount(workflow.total, "action")}
        </span>
      </div>
    </>
  );
}

function Failure({ workflow, structure }: { workflow: Workflow; structure: Structure }) {
  const first = firstFailure(workflow.actions);
  const action = first === undefined ? undefined : workflow.actions[first];
  if (first === undefined || !action) return null;
  const others = (workflow.counts.failed ?? 1) - 1;
  const skipped = skippedActions(structure, workflow.actions, first);
  return (
    <div class="trouble" role="alert">
      <p>
        <Button class="link mono" onClick={() => selectAction(action.action_id)}>
          {action.action_id}
        </Button>{" "}
        failed{others > 0 && `, and ${formatInteger(others)} more`}: {truncate(action.error ?? "no reason given")}
        {skipped.length > 0 && `. Skipped: ${listFew(skipped)}`}
      </p>
    </div>
  );
}

/** Services of a failed workflow, which still use memory or a GPU. */
function WorkflowServices({ workflow }: { workflow: Workflow }) {
  const left = workflow.state === "failed" || workflow.state === "cancelled" ? workflow.services : [];
  return left.map((name) => (
    <p key={name}>
      Service{" "}
      <Button class="link mono" onClick={() => openService(name)}>
        {name}
      </Button>{" "}
      stays. To end it: <code>cluster service delete {name}</code>
    </p>
  ));
}

/** Maximum number of displayed actions that wait for approval. */
const MAX_APPROVALS = 5;

function Approvals({ view, workflow }: { view: WorkflowView; workflow: Workflow }) {
  const waiting = workflow.actions.filter((action) => action.state === "approval");
  if (!waiting.length) return null;
  return (
    <ul class="approvals" aria-label="Approvals">
      {waiting.slice(0, MAX_APPROVALS).map((action) => (
        <li key={action.action_id} class="row">
          <StateLabel state="approval" text={questionOf(action)} />
          <Button class="link mono" onClick={() => selectAction(action.action_id)}>
            {action.action_id}
          </Button>
          <DecisionButtons view={view} workflow={workflow} action={action} />
        </li>
      ))}
      {waiting.length > MAX_APPROVALS && <li class="soft">and {formatInteger(waiting.length - MAX_APPROVALS)} more</li>}
    </ul>
  );
}

/** Return the question of an approval. */
function questionOf({ action_id: id, message }: Action): string {
  return message ?? `Approve ${id}?`;
}

/** Name up to three of several actions. */
function listFew(names: readonly string[]): string {
  const more = names.length - 3;
  return `${names.slice(0, 3).join(", ")}${more > 0 ? ` and ${formatInteger(more)} more` : ""}`;
}

const DECISIONS = {
  approve: { label: "Approve", done: "Approved" },
  reject: { label: "Reject", done: "Rejected" },
} as const;

function DecisionButtons({ view, workflow, action }: { view: WorkflowView; workflow: Workflow; action: Action }) {
  const busy = useSignal(false);
  const { action_id: id } = action;
  const next = workflow.actions.filter((each) => allDependencies(each).includes(id)).map((each) => each.action_id);
  const consequences = {
    approve: next.length ? `Next actions: ${listFew(next)}.` : "No other action waits for this approval.",
    reject: "The action fails, and the actions that need it are skipped. Retry asks again.",
  };
  const decide = async (verb: "approve" | "reject") => {
    const { label, done } = DECISIONS[verb];
    const question = {
      title: `${label}: ${questionOf(action)}`,
      text: consequences[verb],
      buttonLabel: label,
      isDangerous: verb === "reject",
    };
    if (busy.peek() || !(await askConfirmation(question))) return;
    busy.value = true;
    await runAction(`${label} ${id}`, `${done} ${id}`, decideAction(workflow.workflow_id, id, verb));
    busy.value = false;
    view.refresh();
  };
  return (
    <>
      <Button class="primary" disabled={busy.value} onClick={() => void decide("approve")}>
        Approve
      </Button>
      <Button disabled={busy.value} onClick={() => void decide("reject")}>
        Reject
      </Button>
    </>
  );
}

const LOOKS = ["graph", "list", "timeline"];
const LOOK_TITLES: Record<string, string> = { graph: "Graph", timeline: "Timeline", list: "List" };

const PATHS = [
  ["critical", "Critical path"],
  ["failure", "Path to the failure"],
] as const;

function GraphTools({ view, workflow }: { view: WorkflowView; workflow: Workflow }) {
  const counts = countStates(workflow.actions.map((action) => action.state));
  const lit = view.path.value;
  const way = state.way.value || (lit ? "failure" : "");
  return (
    <div class="row loose">
      <div class="segments" role="group" aria-label="View">
        {LOOKS.map((look) => (
          <Button key={look} aria-pressed={state.look.value === look} onClick={() => (state.look.value = look)}>
            {LOOK_TITLES[look]}
          </Button>
        ))}
      </div>
      <div class="segments loose" role="group" aria-label="States">
        {counts.map(([name, count]) => (
          <Button
            key={name}
            aria-pressed={state.states.value === name}
            onClick={() => (state.states.value = state.states.peek() === name ? "" : name)}
          >
            <StateLabel state={name} /> <span class="num soft">{formatInteger(count)}</span>
          </Button>
        ))}
      </div>
      {state.look.value === "graph" && (
        <>
          <div class="segments" role="group" aria-label="Highlighted path">
            {PATHS.filter(([name]) => name === "critical" || firstFailure(workflow.actions) !== undefined).map(
              ([name, title]) => (
                <Button
                  key={name}
                  aria-pressed={way === name}
                  onClick={() => (state.way.value = way === name ? "none" : name)}
                >
                  {title}
                </Button>
              ),
            )}
          </div>
          {workflow.total > 60 && (
            <label class="row">
              <input
                type="checkbox"
                checked={state.fold.value}
                onChange={(event) => {
                  state.unfolded.value = [];
                  state.fold.value = event.currentTarget.checked;
                }}
              />
              Group similar actions
            </label>
          )}
          <span class="small soft num" role="status">
            {lit && `${formatCount(lit.vertices.length, "action")} on it, ${formatSeconds(lit.seconds)}`}
          </span>
        </>
      )}
    </div>
  );
}

// -- the list ---------------------------------------------------------------------------------------------------------

const COLUMNS: Column<Action>[] = [
  {
    id: "action",
    title: "action",
    cell: ({ action_id: id }) => (
      <Button class="link mono" onClick={() => selectAction(id)}>
        {id}
      </Button>
    ),
  },
  { id: "type", title: "type", cell: ({ action_type: type }) => type },
  { id: "state", title: "state", cell: (action) => <StateLabel state={action.state} /> },
  numberColumn("progress", "progress", (action) => formatProgress(action)),
  numberColumn("time", "time", (action) => formatSeconds(actionSeconds(action, clusterTime(knownUntil.value)))),
  { id: "after", title: "waits for", cell: (action) => <ActionIds ids={allDependencies(action)} /> },
  { id: "error", title: "error", cell: ({ error }) => <span class="clip soft">{error}</span> },
];

function formatProgress({ items, progress, ended, state: name }: Action): string {
  if (items) return `${formatInteger(items.done)} of ${formatInteger(items.total)}`;
  return progress === null || ended || name === "done" ? "" : formatPercent(progress);
}

function ActionIds({ ids }: { ids: readonly string[] }) {
  const few = ids.length <= 3;
  return <span class="mono soft">{few ? ids.join(", ") : `${ids[0]} and ${formatInteger(ids.length - 1)} more`}</span>;
}

function ActionList({ workflow }: { workflow: Workflow }) {
  const stateFilter = state.states.value;
  const rows = stateFilter ? workflow.actions.filter((action) => action.state === stateFilter) : workflow.actions;
  if (!rows.length) return <p class="soft">No action is in this state.</p>;
  return (
    <LongTable
      label="Actions"
      columns={COLUMNS}
      rows={rows}
      rowKey={(action) => action.action_id}
      openKey={state.action.value}
      maxHeight={560}
    />
  );
}

// -- one action -------------------------------------------------------------------------------------------------------

function ActionPanel({ view, workflow, structure, action }: Props & { action: Action }) {
  const id = action.action_id;
  const { value: detail, problem } = useRequest(
    (signal) => loadAction(workflow.workflow_id, id, signal),
    [action.state, action.items?.done],
  );
  const vertex = structure.vertexOf.get(id) ?? -1;
  const box = view.graphLayout.value?.boxes.members[view.graphLayout.value.boxes.boxOfVertex[vertex] ?? -1];
  const after = (structure.graph.children[vertex] ?? []).map((each) => workflow.actions[each]?.action_id ?? "");
  const { parameters, result, item_jobs: jobs = [] } = detail ?? {};
  return (
    <aside class="drawer" aria-label={`Action ${id}`}>
      <header class="row">
        <h2 class="mono grow">{id}</h2>
        <Button class="plain" onClick={() => selectAction("")}>
          Close
        </Button>
      </header>
      <div class="row">
        <StateLabel state={action.state} />
        <span class="soft">{action.action_type}</span>
        {action.state === "approval" && <DecisionButtons view={view} workflow={workflow} action={action} />}
      </div>
      {action.message && <p>{action.message}</p>}
      {action.error && <p class={action.state === "failed" ? "trouble" : "soft"}>{action.error}</p>}
      {action.job_id && <ActionJob id={action.job_id} />}
      {box && box.length > 1 && state.look.value === "graph" && (
        <Siblings workflow={workflow} members={box} selected={action} />
      )}
      <ActionFacts action={action} />
      {jobs.length > 0 && <ActionItems jobs={jobs} total={action.items?.total ?? jobs.length} />}
      <Neighbors title="Waits for" ids={action.dependencies} workflow={workflow} structure={structure} />
      <Neighbors title="Waits for the end of" ids={action.after_any} workflow={workflow} structure={structure} />
      <Neighbors title="Needed by" ids={after} workflow={workflow} structure={structure} />
      {problem && connection.value === "live" && <ErrorMessage subject="Parameters" problem={problem} />}
      {parameters && Object.keys(parameters).length > 0 && (
        <section class="part">
          <h3>Parameters</h3>
          <Outline value={typedParameters(action.action_type, parameters)} label="Parameters" />
        </section>
      )}
      {result !== undefined && result !== null && (
        <section class="part">
          <h3>Result</h3>
          <Outline value={result} label="Result" />
        </section>
      )}
    </aside>
  );
}

/** Jobs of an action that runs once per item. */
function ActionItems({ jobs, total }: { jobs: ActionDetail["item_jobs"]; total: number }) {
  const order = countStates(jobs.map((job) => job.state)).map(([name]) => name);
  const sorted = [...jobs].sort((left, right) => order.indexOf(left.state) - order.indexOf(right.state));
  const rest = total - Math.min(jobs.length, MAX_NAMES);
  return (
    <section class="part">
      <h3>
        Items <span class="num">{formatInteger(total)}</span>
      </h3>
      <ul>
        {sorted.slice(0, MAX_NAMES).map(({ index, state: name, job_id: job, error }) => (
          <li key={index}>
            <span class="row">
              <StateLabel state={name} />
              <span class="num">{formatInteger(index)}</span>
              {job && (
                <a class="mono" href={jobAddress(job)}>
                  {job}
                </a>
              )}
            </span>
            {error && <p class="small bad">{error}</p>}
          </li>
        ))}
        {rest > 0 && <li class="soft">and {formatInteger(rest)} more</li>}
      </ul>
    </section>
  );
}

function ActionFacts({ action }: { action: Action }) {
  const facts: [string, string][] = [
    ["started", formatTimestamp(action.started)],
    ["ended", formatTimestamp(action.ended)],
    [hasEnded(action) ? "took" : "runs for", formatSeconds(actionSeconds(action, clusterTime(knownUntil.value)))],
    ["progress", formatProgress(action)],
  ];
  const known = facts.filter(([, value]) => value);
  if (!known.length) return null;
  return (
    <dl class="facts">
      {known.map(([name, value]) => [
        <dt key={name}>{name}</dt>,
        <dd class="num" key={`${name}=`}>
          {value}
        </dd>,
      ])}
    </dl>
  );
}

/** Maximum number of names in a list of neighbors or siblings. */
const MAX_NAMES = 12;

function Neighbors({
  title,
  ids,
  workflow,
  structure,
}: {
  title: string;
  ids: readonly string[];
  workflow: Workflow;
  structure: Structure;
}) {
  if (!ids.length) return null;
  const actions = ids.flatMap((id) => workflow.actions[structure.vertexOf.get(id) ?? -1] ?? []);
  return (
    <section class="part">
      <h3>
        {title} <span class="num">{formatInteger(ids.length)}</span>
      </h3>
      <ActionLinks actions={actions} />
    </section>
  );
}

/** Links to the most urgent of many actions. */
function ActionLinks({ actions }: { actions: readonly Action[] }) {
  const states = countStates(actions.map((action) => action.state)).map(([name]) => name);
  const sorted = [...actions].sort((left, right) => states.indexOf(left.state) - states.indexOf(right.state));
  return (
    <ul>
      {sorted.slice(0, MAX_NAMES).map((action) => (
        <li key={action.action_id} class="row">
          <StateLabel state={action.state} />
          <Button class="link mono" onClick={() => selectAction(action.action_id)}>
            {action.action_id}
          </Button>
        </li>
      ))}
      {sorted.length > MAX_NAMES && <li class="soft">and {formatInteger(sorted.length - MAX_NAMES)} more</li>}
    </ul>
  );
}

/** Actions in the same box. */
function Siblings({
  workflow,
  members,
  selected: chosen,
}: {
  workflow: Workflow;
  members: readonly number[];
  selected: Action;
}) {
  const actions = members.flatMap((vertex) => workflow.actions[vertex] ?? []);
  const others = actions.filter((action) => action !== chosen);
  const unfold = () => (state.unfolded.value = [...state.unfolded.peek(), actions[0]?.action_id ?? ""]);
  return (
    <section class="part">
      <div class="row">
        <h3 class="grow">
          Similar actions <span class="num">{formatInteger(actions.length)}</span>
        </h3>
        <Button onClick={unfold}>Unfold</Button>
      </div>
      <p class="soft small">
        {countStates(actions.map((action) => action.state))
          .map(([name, count]) => `${formatInteger(count)} ${name}`)
          .join(", ")}
      </p>
      <ActionLinks actions={others} />
    </section>
  );
}

function ActionJob({ id }: { id: string }) {
  const job = useMemo(() => watchJob(id), [id]);
  const { waiting_because: why } = job.value ?? {};
  return (
    <section class="part">
      <h3>Job</h3>
      <div class="row">
        <a class="mono" href={jobAddress(id)}>
          {id}
        </a>
      </div>
      {why && <p class="soft">{why}</p>}
    </section>
  );
}
