/** One workflow: its progress, its graph or list of actions, and one action in detail. */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { addressOf, clusterAddress, pageOf } from "../../kinds";
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
import { chooseAction, GraphView } from "./graph";
import { brief } from "./model/brief";
import { openService, openWorkflow, state } from "./model/state";
import { viewOf, type WorkflowView } from "./model/workflow-view";
import {
  actionDetail,
  approve,
  tallied,
  firstFailure,
  isOver,
  offers,
  secondsOf,
  skippedBy,
  steerWorkflow,
  waitsFor,
  type Structure,
} from "./model/workflows";

export function WorkflowPart({ id }: { id: string }) {
  const view = useMemo(() => viewOf(id), [id]);
  useEffect(() => view.stop, [view]);
  const [shown, problem] = [view.answer.value, view.problem.value];
  return (
    <section class="workflow stack" aria-label={`Workflow ${id}`}>
      <nav>
        <TextButton onClick={() => openWorkflow("")}>All workflows</TextButton>
      </nav>
      {shown && view.structure.value ? (
        <Body view={view} shown={shown} structure={view.structure.value} problem={problem} />
      ) : problem ? (
        <Missing id={id} problem={problem} view={view} />
      ) : (
        <LoadingRows rows={8} />
      )}
    </section>
  );
}

function Missing({ id, problem, view }: { id: string; problem: Problem; view: WorkflowView }) {
  if (problem.status !== 404) return <ErrorMessage subject={`Workflow ${id}`} problem={problem} onRetry={view.poke} />;
  return (
    <p class="trouble" role="alert">
      There is no workflow {id}, or it belongs to another tenant.
    </p>
  );
}

interface Props {
  view: WorkflowView;
  shown: Workflow;
  structure: Structure;
}

function Body({ view, shown, structure, problem }: Props & { problem: Problem | undefined }) {
  const list = state.look.value === "list";
  const drawn = view.drawn.value;
  const action = shown.actions[structure.place.get(state.action.value) ?? -1];
  useLayoutEffect(
    () =>
      bindShortcuts({
        L: {
          text: "show the actions as a list or as a graph",
          run: () => (state.look.value = list ? "graph" : "list"),
        },
        E: {
          text: "open the first failed action",
          run: () => chooseAction(shown.actions[firstFailure(shown.actions) ?? -1]?.action_id ?? ""),
        },
        c: { text: "cancel the workflow, after a confirmation", run: () => void steer(view, shown, "cancel") },
        r: { text: "retry the failed actions of the workflow", run: () => void steer(view, shown, "retry") },
        Escape: {
          text: "close the action, then the workflow",
          run: () => (state.action.peek() ? chooseAction("") : openWorkflow("")),
        },
      }),
    [shown],
  );
  return (
    <>
      <Heading view={view} shown={shown} />
      {problem && connection.value === "live" && <ErrorMessage subject="Workflow" problem={problem} />}
      {shown.waiting_because && <p>Waits: {shown.waiting_because}.</p>}
      <Failure shown={shown} structure={structure} />
      <Services shown={shown} />
      <Approvals view={view} shown={shown} />
      <Tools view={view} shown={shown} />
      <div class={`workflow-body ages ${action ? "with-drawer" : ""}`}>
        <div class="list">
          {list || !drawn ? (
            <Actions shown={shown} />
          ) : (
            <GraphView view={view} shown={shown} structure={structure} drawn={drawn} />
          )}
        </div>
        {action && (
          <ActionPanel key={action.action_id} view={view} shown={shown} structure={structure} action={action} />
        )}
      </div>
    </>
  );
}

// -- above the graph --------------------------------------------------------------------------------------------------

const WORDS = { cancel: "Cancel", retry: "Retry" } as const;

async function steer(view: WorkflowView, shown: Workflow, verb: "cancel" | "retry"): Promise<void> {
  if (!offers(shown.state).includes(verb)) return showToast(`${WORDS[verb]}: the workflow is ${shown.state}`);
  const question = {
    title: `Cancel workflow ${shown.name}?`,
    text: "Its jobs are cancelled, and no further action starts. Retry continues from there.",
    buttonLabel: "Cancel workflow",
    isDangerous: true,
  };
  if (verb === "cancel" && !(await askConfirmation(question))) return;
  try {
    const { notes = [] } = await steerWorkflow(shown.workflow_id, verb);
    const said = ["Retried: the workflow continues from the failed actions", ...notes.slice(0, 3)].join(". ");
    showToast(verb === "cancel" ? "Cancel requested" : said);
  } catch (error) {
    showError(`${WORDS[verb]} ${shown.name}`, error);
  }
  view.poke();
}

function Heading({ view, shown }: { view: WorkflowView; shown: Workflow }) {
  const done = shown.counts.done ?? 0;
  const end = shown.ended ? Date.parse(shown.ended) : clusterTime(knownUntil.value);
  return (
    <>
      <div class="row">
        <h2>{shown.name}</h2>
        <StateLabel state={shown.state} />
        <span class="mono soft">{shown.workflow_id}</span>
        <span class="soft" title={shown.created}>
          since {formatTimestamp(shown.created)}, {formatSeconds(Math.max(0, end - Date.parse(shown.created)) / 1000)}
        </span>
        <span class="grow" />
        {offers(shown.state).map((verb) => (
          <Button
            key={verb}
            class={verb === "cancel" ? "danger" : "primary"}
            onClick={() => void steer(view, shown, verb)}
          >
            {WORDS[verb]}
          </Button>
        ))}
      </div>
      {shown.description && (
        <p class="soft" title={shown.description}>
          {brief(shown.description)}
        </p>
      )}
      <div class="progress wide">
        <ProgressBar ratio={shown.total ? done / shown.total : 1} label={`workflow ${shown.name}`} />
        <span class="num">{formatPercent(shown.total ? done / shown.total : 1)}</span>
        <span class="num soft">
          {formatInteger(done)} of {formatCount(shown.total, "action")}
        </span>
      </div>
    </>
  );
}

function Failure({ shown, structure }: { shown: Workflow; structure: Structure }) {
  const first = firstFailure(shown.actions);
  const action = first === undefined ? undefined : shown.actions[first];
  if (first === undefined || !action) return null;
  const others = (shown.counts.failed ?? 1) - 1;
  const skipped = skippedBy(structure, shown.actions, first);
  return (
    <div class="trouble" role="alert">
      <p>
        <Button class="link mono" onClick={() => chooseAction(action.action_id)}>
          {action.action_id}
        </Button>{" "}
        failed{others > 0 && `, and ${formatInteger(others)} more`}: {brief(action.error ?? "no reason given")}
        {skipped > 0 && `. ${formatInteger(skipped)} that wait for it ${skipped === 1 ? "is" : "are"} skipped`}
      </p>
    </div>
  );
}

/** Services of a failed workflow, which still use memory or a GPU. */
function Services({ shown }: { shown: Workflow }) {
  const left = shown.state === "failed" || shown.state === "cancelled" ? shown.services : [];
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
const MOST_APPROVALS = 5;

function Approvals({ view, shown }: { view: WorkflowView; shown: Workflow }) {
  const waiting = shown.actions.filter((action) => action.state === "approval");
  if (!waiting.length) return null;
  return (
    <ul class="approvals" aria-label="Waits for approval">
      {waiting.slice(0, MOST_APPROVALS).map((action) => (
        <li key={action.action_id} class="row">
          <StateLabel state="approval" text="Waits for approval:" />
          <Button class="link mono" onClick={() => chooseAction(action.action_id)}>
            {action.action_id}
          </Button>
          <Approve view={view} shown={shown} action={action} />
        </li>
      ))}
      {waiting.length > MOST_APPROVALS && (
        <li class="soft">and {formatInteger(waiting.length - MOST_APPROVALS)} more</li>
      )}
    </ul>
  );
}

function Approve({ view, shown, action }: { view: WorkflowView; shown: Workflow; action: Action }) {
  const busy = useSignal(false);
  const give = async () => {
    const next = shown.actions.filter((each) => waitsFor(each).includes(action.action_id));
    const names = next.slice(0, 3).map((each) => each.action_id);
    const question = {
      title: `Approve ${action.action_id}?`,
      text: next.length
        ? `Next actions: ${names.join(", ")}${next.length > 3 ? ` and ${next.length - 3} more` : ""}.`
        : "No other action waits for this approval.",
      buttonLabel: "Approve",
    };
    if (busy.peek() || !(await askConfirmation(question))) return;
    busy.value = true;
    const { action_id: id } = action;
    await runAction(`Approve ${id}`, `Approved ${id}`, approve(shown.workflow_id, id));
    busy.value = false;
    view.poke();
  };
  return (
    <Button class="primary" disabled={busy.value} onClick={() => void give()}>
      Approve
    </Button>
  );
}

const WAYS = [
  ["critical", "Critical path"],
  ["failure", "Path to the failure"],
] as const;

function Tools({ view, shown }: { view: WorkflowView; shown: Workflow }) {
  const counts = tallied(shown.actions.map((action) => action.state));
  const lit = view.lit.value;
  const way = state.way.value || (lit ? "failure" : "");
  return (
    <div class="row loose">
      <div class="segments" role="group" aria-label="Shown as">
        {(["graph", "list"] as const).map((look) => (
          <Button key={look} aria-pressed={state.look.value === look} onClick={() => (state.look.value = look)}>
            {look === "graph" ? "Graph" : "List"}
          </Button>
        ))}
      </div>
      <div class="segments loose" role="group" aria-label="States shown">
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
      {state.look.value !== "list" && (
        <>
          <div class="segments" role="group" aria-label="Highlighted">
            {WAYS.filter(([name]) => name === "critical" || firstFailure(shown.actions) !== undefined).map(
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
          {shown.total > 60 && (
            <label class="row">
              <input
                type="checkbox"
                checked={state.fold.value}
                onChange={(event) => {
                  state.unfolded.value = [];
                  state.fold.value = event.currentTarget.checked;
                }}
              />
              Fold what stands alike
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
      <Button class="link mono" onClick={() => chooseAction(id)}>
        {id}
      </Button>
    ),
  },
  { id: "type", title: "type", cell: ({ action_type: type }) => type },
  { id: "state", title: "state", cell: (action) => <StateLabel state={action.state} /> },
  numberColumn("progress", "progress", (action) => far(action)),
  numberColumn("time", "time", (action) => formatSeconds(secondsOf(action, clusterTime(knownUntil.value)))),
  { id: "after", title: "waits for", cell: (action) => <Names of={waitsFor(action)} /> },
  { id: "error", title: "error", cell: ({ error }) => <span class="clip soft">{error}</span> },
];

function far({ items, progress, ended, state: name }: Action): string {
  if (items) return `${formatInteger(items.done)} of ${formatInteger(items.total)}`;
  return progress === null || ended || name === "done" ? "" : formatPercent(progress);
}

function Names({ of }: { of: readonly string[] }) {
  const few = of.length <= 3;
  return <span class="mono soft">{few ? of.join(", ") : `${of[0]} and ${formatInteger(of.length - 1)} more`}</span>;
}

function Actions({ shown }: { shown: Workflow }) {
  const wanted = state.states.value;
  const rows = wanted ? shown.actions.filter((action) => action.state === wanted) : shown.actions;
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

function ActionPanel({ view, shown, structure, action }: Props & { action: Action }) {
  const id = action.action_id;
  const { value: detail, problem } = useRequest(
    (signal) => actionDetail(shown.workflow_id, id, signal),
    [action.state, action.items?.done],
  );
  const vertex = structure.place.get(id) ?? -1;
  const box = view.drawn.value?.boxes.members[view.drawn.value.boxes.boxOfVertex[vertex] ?? -1];
  const after = (structure.graph.children[vertex] ?? []).map((each) => shown.actions[each]?.action_id ?? "");
  const { parameters, result, item_jobs: jobs = [] } = detail ?? {};
  return (
    <aside class="drawer" aria-label={`Action ${id}`}>
      <header class="row">
        <h2 class="mono grow">{id}</h2>
        <Button class="plain" onClick={() => chooseAction("")}>
          Close
        </Button>
      </header>
      <div class="row">
        <StateLabel state={action.state} />
        <span class="soft">{action.action_type}</span>
        {action.state === "approval" && <Approve view={view} shown={shown} action={action} />}
      </div>
      {action.error && <p class={action.state === "failed" ? "trouble" : "soft"}>{action.error}</p>}
      {action.job_id && <JobPart id={action.job_id} />}
      {box && box.length > 1 && state.look.value !== "list" && <Siblings shown={shown} members={box} chosen={action} />}
      <Facts action={action} />
      {jobs.length > 0 && <Items jobs={jobs} total={action.items?.total ?? jobs.length} />}
      <Near title="Waits for" ids={action.dependencies} shown={shown} structure={structure} />
      <Near title="Waits for the end of" ids={action.after_any} shown={shown} structure={structure} />
      <Near title="Waits for it" ids={after} shown={shown} structure={structure} />
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
function Items({ jobs, total }: { jobs: ActionDetail["item_jobs"]; total: number }) {
  const order = tallied(jobs.map((job) => job.state)).map(([name]) => name);
  const sorted = [...jobs].sort((left, right) => order.indexOf(left.state) - order.indexOf(right.state));
  const rest = total - Math.min(jobs.length, MOST_NAMES);
  return (
    <section class="part">
      <h3>
        Items <span class="num">{formatInteger(total)}</span>
      </h3>
      <ul>
        {sorted.slice(0, MOST_NAMES).map(({ index, state: name, job_id: job, error }) => (
          <li key={index}>
            <span class="row">
              <StateLabel state={name} />
              <span class="num">{formatInteger(index)}</span>
              {job && (
                <a class="mono" href={clusterAddress(job)}>
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

function Facts({ action }: { action: Action }) {
  const facts: [string, string][] = [
    ["started", formatTimestamp(action.started)],
    ["ended", formatTimestamp(action.ended)],
    [isOver(action) ? "took" : "runs for", formatSeconds(secondsOf(action, clusterTime(knownUntil.value)))],
    ["progress", far(action)],
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
const MOST_NAMES = 12;

function Near({
  title,
  ids,
  shown,
  structure,
}: {
  title: string;
  ids: readonly string[];
  shown: Workflow;
  structure: Structure;
}) {
  if (!ids.length) return null;
  const actions = ids.flatMap((id) => shown.actions[structure.place.get(id) ?? -1] ?? []);
  return (
    <section class="part">
      <h3>
        {title} <span class="num">{formatInteger(ids.length)}</span>
      </h3>
      <ActionNames actions={actions} />
    </section>
  );
}

/** Links to the most urgent of many actions. */
function ActionNames({ actions }: { actions: readonly Action[] }) {
  const states = tallied(actions.map((action) => action.state)).map(([name]) => name);
  const sorted = [...actions].sort((left, right) => states.indexOf(left.state) - states.indexOf(right.state));
  return (
    <ul>
      {sorted.slice(0, MOST_NAMES).map((action) => (
        <li key={action.action_id} class="row">
          <StateLabel state={action.state} />
          <Button class="link mono" onClick={() => chooseAction(action.action_id)}>
            {action.action_id}
          </Button>
        </li>
      ))}
      {sorted.length > MOST_NAMES && <li class="soft">and {formatInteger(sorted.length - MOST_NAMES)} more</li>}
    </ul>
  );
}

/** Actions in the same box. */
function Siblings({ shown, members, chosen }: { shown: Workflow; members: readonly number[]; chosen: Action }) {
  const actions = members.flatMap((vertex) => shown.actions[vertex] ?? []);
  const others = actions.filter((action) => action !== chosen);
  const unfold = () => (state.unfolded.value = [...state.unfolded.peek(), actions[0]?.action_id ?? ""]);
  return (
    <section class="part">
      <div class="row">
        <h3 class="grow">
          Stand alike <span class="num">{formatInteger(actions.length)}</span>
        </h3>
        <Button onClick={unfold}>Unfold</Button>
      </div>
      <p class="soft small">
        {tallied(actions.map((action) => action.state))
          .map(([name, count]) => `${formatInteger(count)} ${name}`)
          .join(", ")}
      </p>
      <ActionNames actions={others} />
    </section>
  );
}

function JobPart({ id }: { id: string }) {
  const job = useMemo(() => watchJob(id), [id]);
  const { type, waiting_because: why } = job.value ?? {};
  return (
    <section class="part">
      <h3>Job</h3>
      <div class="row">
        <a class="mono" href={clusterAddress(id)}>
          {id}
        </a>
        {type && <a href={addressOf(type, id)}>Open in {pageOf(type).title}</a>}
      </div>
      {why && <p class="soft">{why}</p>}
    </section>
  );
}
