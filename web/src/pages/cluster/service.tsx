/** One service: its state, measurements of the last minute, replicas with logs, and a playground. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Problem, Service, ServiceReplica } from "../../lib/api";
import { formatBytes, formatCompact, formatInteger, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { clusterTime, connection, knownUntil } from "../../lib/live";
import { Button, TextButton } from "../../ui/button";
import { CopyButton, CopyLine } from "../../ui/copy-button";
import { askConfirmation } from "../../ui/dialog";
import { Headlines, type Headline } from "../../ui/headline";
import { lazy } from "../../ui/lazy";
import { Outline } from "../../ui/outline";
import { StateLabel } from "../../ui/state";
import { LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { runAction, showError } from "../../ui/toast";
import { ErrorMessage } from "../../ui/error-message";
import { Playground } from "./playground";
import { usePolling } from "./model/polling";
import {
  scalingLimits,
  deleteService,
  describeDrain,
  hasScope,
  formatModel,
  requestPageLink,
  formatReadiness,
  explainState,
  scaleService,
  loadService,
  allowedServiceVerbs,
  controlService,
  canWriteLog,
  type ServiceVerb,
} from "./model/services";
import { openReplica, openService, state } from "./model/state";

const LogView = lazy(() => import("../../logs/view").then((part) => part.LogView), 3);

/** Interval in seconds between requests, and number of responses in the small charts. */
const REFRESH_SECONDS = 2;
const HISTORY_LENGTH = 60;

export function ServiceView({ name }: { name: string }) {
  /** Number of actions on this page, each of which refreshes the service. */
  const acts = useSignal(0);
  const { value, problem } = usePolling(`${name} ${acts.value}`, REFRESH_SECONDS, (signal) =>
    loadService(name, signal),
  ).value;
  useLayoutEffect(
    () =>
      bindShortcuts({
        Escape: {
          text: "close the log, then the service",
          run: () => (state.replica.peek() ? openReplica("") : openService("")),
        },
      }),
    [],
  );
  const again = () => (acts.value += 1);
  return (
    <div class="stack services">
      <p>
        <TextButton onClick={() => openService("")}>All services</TextButton>
      </p>
      {problem && (connection.value === "live" || !value) && (
        <MissingService name={name} problem={problem} onRetry={again} />
      )}
      {problem?.status !== 404 &&
        (value ? <ServiceBody service={value} onChange={again} /> : !problem && <LoadingRows rows={8} />)}
    </div>
  );
}

function MissingService({ name, problem, onRetry }: { name: string; problem: Problem; onRetry: () => void }) {
  if (problem.status !== 404) return <ErrorMessage subject={`Service ${name}`} problem={problem} onRetry={onRetry} />;
  return (
    <p class="trouble" role="alert">
      There is no service {name}: it was deleted, or is another tenant's.
    </p>
  );
}

interface Props {
  service: Service;
  onChange: () => void;
}

function ServiceBody({ service: row, onChange: onAct }: Props) {
  return (
    <>
      <Heading service={row} onChange={onAct} />
      <p class={row.failures ? "bad" : "soft"} role="status">
        {explainState(row, clusterTime(knownUntil.value))}
      </p>
      {!row.page && <Measurements row={row} />}
      <Replicas row={row} />
      {!row.page && <Endpoint name={row.name} />}
      {!row.page && <Playground model={row.name} />}
      {row.asked && (
        <details class="part">
          <summary>Requested configuration</summary>
          <Outline value={row.asked} label="Requested configuration" />
        </details>
      )}
    </>
  );
}

/** Address and examples for programs that use the service. */
function Endpoint({ name }: { name: string }) {
  const url = `${location.origin}/v1`;
  const examples = {
    Python: [
      "from openai import OpenAI",
      "",
      `client = OpenAI(base_url="${url}", api_key="YOUR TOKEN")`,
      `answer = client.chat.completions.create(model="${name}", messages=[{"role": "user", "content": "Hello"}])`,
      "print(answer.choices[0].message.content)",
    ].join("\n"),
    curl: [
      `curl -s ${url}/chat/completions -H "Authorization: Bearer YOUR TOKEN" -H 'Content-Type: application/json' \\`,
      `    -d '{"model": "${name}", "messages": [{"role": "user", "content": "Hello"}]}'`,
    ].join("\n"),
  };
  return (
    <section class="stack" aria-labelledby="endpoint-title">
      <h3 id="endpoint-title">Endpoint</h3>
      <CopyLine text={url} name="base URL" />
      <p class="soft">
        Programs that use OpenAI's API can use this base URL with the model <code>{name}</code> and a token with the
        scope infer. {hasScope("admin") && <a href="/cluster.html#tab=admin&list=tokens">Create a token</a>}
      </p>
      {Object.entries(examples).map(([title, text]) => (
        <details class="part" key={title}>
          <summary>{title}</summary>
          <pre>{text}</pre>
          <CopyButton text={text} name={`${title} example`} />
        </details>
      ))}
    </section>
  );
}

// -- actions --------------------------------------------------------------------------------------------------------

const VERB_LABELS: Record<ServiceVerb, string> = { start: "Start", restart: "Restart", stop: "Stop" };
const DONE_TEXTS: Record<ServiceVerb, string> = {
  start: "Starts",
  restart: "Restarts, one after the other",
  stop: "Stops",
};

async function controlWithConfirmation(row: Service, verb: ServiceVerb): Promise<void> {
  const question = {
    title: `Stop ${row.name}?`,
    text: `${describeDrain(row)} Requests are refused until the service is started again.`,
    buttonLabel: "Stop service",
    isDangerous: true,
  };
  if (verb === "stop" && !(await askConfirmation(question))) return;
  await runAction(
    `${VERB_LABELS[verb]} ${row.name}`,
    `${DONE_TEXTS[verb]}: ${row.name}`,
    controlService(row.name, verb),
  );
}

/** Open a service's page in a tab. The tab opens before the link is requested, because browsers block later pop-ups. */
async function openPage(row: Service): Promise<void> {
  const tab = window.open("about:blank");
  try {
    const url = await requestPageLink(row.name);
    if (tab) tab.location.replace(url);
    else location.assign(url);
  } catch (error) {
    tab?.close();
    showError(`Open ${row.name}`, error);
  }
}

async function deleteWithConfirmation(row: Service): Promise<void> {
  const question = {
    title: `Delete ${row.name}?`,
    text: `${describeDrain(row)} The configuration is deleted; the model stays. The name can be reused at once.`,
    buttonLabel: "Delete service",
    isDangerous: true,
  };
  if (!(await askConfirmation(question))) return;
  if (await runAction(`Delete ${row.name}`, `Deleted ${row.name}`, deleteService(row.name))) openService("");
}

function Heading({ service: row, onChange: onAct }: Props) {
  const act = (work: Promise<void>) => void work.then(onAct);
  return (
    <>
      <div class="row">
        <h2>{row.name}</h2>
        <StateLabel state={row.state} />
        <span class="soft">
          {row.engine} {formatModel(row.model)}
        </span>
        <span class="grow" />
        {row.page && (
          <Button disabled={!row.ready} onClick={() => void openPage(row)}>
            Open
          </Button>
        )}
        {hasScope("run") ? (
          <>
            {allowedServiceVerbs(row).map((verb) => (
              <Button key={verb} onClick={() => act(controlWithConfirmation(row, verb))}>
                {VERB_LABELS[verb]}
              </Button>
            ))}
            <Button class="danger" onClick={() => act(deleteWithConfirmation(row))}>
              Delete
            </Button>
          </>
        ) : (
          <span class="soft small">Changing the service requires a token with the scope run.</span>
        )}
      </div>
      <div class="row">
        <span class="num">{formatReadiness(row)}</span>
        {hasScope("run") && <ScaleForm service={row} onChange={onAct} key={row.name} />}
      </div>
    </>
  );
}

function ScaleForm({ service: row, onChange: onAct }: Props) {
  const typed = useSignal<string | undefined>(undefined);
  const { min, max } = scalingLimits(row);
  const text = typed.value ?? String(row.replicas);
  const replicas = /^\d{1,3}$/.test(text.trim()) ? Number(text) : Number.NaN;
  const wrong = !(replicas >= min && replicas <= max);
  const step = (by: number) =>
    (typed.value = String(Math.min(max, Math.max(min, (wrong ? row.replicas : replicas) + by))));
  const apply = async () => {
    const fewer = row.replicas - replicas;
    const question = {
      title: `Scale ${row.name} from ${row.replicas} to ${replicas}?`,
      text: describeDrain(row),
      buttonLabel: `Scale to ${replicas}`,
      isDangerous: true,
    };
    if (fewer > 0 && row.requests > 0 && !(await askConfirmation(question))) return;
    if (await runAction(`Scale ${row.name}`, `${row.name}: scaling to ${replicas}`, scaleService(row.name, replicas))) {
      typed.value = undefined;
      onAct();
    }
  };
  return (
    <form
      class="row stepper"
      onSubmit={(event) => {
        event.preventDefault();
        if (!wrong) void apply();
      }}
    >
      <label for="replicas" class="soft">
        wanted
      </label>
      <span class="segments">
        <Button aria-label="One fewer" disabled={!(replicas > min)} onClick={() => step(-1)}>
          −
        </Button>
        <input
          id="replicas"
          class="num"
          inputMode="numeric"
          autocomplete="off"
          size={3}
          value={text}
          aria-invalid={wrong ? "true" : undefined}
          aria-describedby="replicas-hint"
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
        <Button aria-label="One more" disabled={!(replicas < max)} onClick={() => step(1)}>
          +
        </Button>
      </span>
      {typed.value !== undefined && (
        <button type="submit" class="primary" disabled={wrong || replicas === row.replicas}>
          Scale
        </button>
      )}
      <span id="replicas-hint" class={`small ${wrong ? "bad" : "soft"}`}>
        {(wrong || max < 100) && `${min} to ${max}${max < 100 ? ", scaled by load" : ""}`}
      </span>
    </form>
  );
}

// -- the last minute --------------------------------------------------------------------------------------------------

type KnownValues = readonly (number | null)[];

/** Return the latest values of a measurement, oldest first. */
function useHistory(row: Service, figure: (row: Service) => number | null | undefined): KnownValues {
  const list = useRef<{ of: Service | undefined; values: (number | null)[] }>({ of: undefined, values: [] });
  if (list.current.of !== row)
    list.current = { of: row, values: [...list.current.values, figure(row) ?? null].slice(-HISTORY_LENGTH) };
  return list.current.values;
}

function Measurements({ row }: { row: Service }) {
  const { last_minute: lately } = row;
  const requests = useHistory(row, (each) => each.last_minute.requests_per_second);
  const time = useHistory(row, (each) => each.last_minute.median_seconds);
  const first = useHistory(row, (each) => each.last_minute.median_first_token_seconds);
  const tokens = useHistory(row, (each) => each.last_minute.answer_tokens_per_second);
  const each = lately.median_stream_tokens_per_second;
  const list: Headline[] = [
    {
      label: "requests/s",
      value: formatCompact(lately.requests_per_second),
      suffix: `${formatInteger(row.requests)} now${lately.failed ? `, ${formatInteger(lately.failed)} failed` : ""}`,
      hint: "Requests that finished in the last minute. Failed: refused by a full service, or not answered.",
      history: requests,
    },
    {
      label: "Median latency",
      value: formatSeconds(lately.median_seconds) || "-",
      hint: "Time from a request's arrival to the last byte of its answer, accurate to 5 %",
      history: time,
    },
    {
      label: "Median time to first token",
      value: formatSeconds(lately.median_first_token_seconds) || "-",
      hint: "Time to the first token of streaming requests, accurate to 5 %",
      history: first,
    },
    {
      label: "tokens/s",
      value: formatCompact(lately.answer_tokens_per_second),
      suffix: each ? `${formatCompact(each)} tokens/s per request` : "",
      hint: "Tokens of answers that finished in the last minute. Per stream: the median rate after the first token.",
      history: tokens,
    },
  ];
  return <Headlines label="The last minute" list={list} />;
}

// -- replicas and logs ------------------------------------------------------------------------------------------------

const COLUMNS: Column<ServiceReplica>[] = [
  {
    id: "job",
    title: "replica",
    cell: ({ job_id: job }) => <span class="mono">{job}</span>,
  },
  {
    id: "state",
    title: "state",
    canWrap: true,
    cell: ({ state: how, because }) => (
      <>
        <StateLabel state={how} />
        {because && <div class="small soft">{because}</div>}
      </>
    ),
  },
  {
    id: "runner",
    title: "runner",
    cell: ({ worker, host }) => (
      <>
        <span class="mono">{worker}</span> {host && <span class="soft small">{host}</span>}
      </>
    ),
  },
  {
    id: "device",
    title: "device",
    canWrap: true,
    cell: ({ devices }) => devices?.join(", ") ?? <span class="soft">not known</span>,
  },
  {
    id: "memory",
    title: "memory",
    isNumeric: true,
    cell: ({ memory_bytes: memory }) =>
      memory === null ? <span class="soft">not known</span> : <span class="num">{formatBytes(memory)}</span>,
  },
  numberColumn("now", "requests now", ({ requests }) => formatInteger(requests)),
  {
    id: "since",
    title: "for",
    isNumeric: true,
    cell: ({ since }) => (
      <span class="num" title={since}>
        {formatSeconds(Math.max(0, clusterTime(knownUntil.value) - Date.parse(since)) / 1000)}
      </span>
    ),
  },
  {
    id: "acts",
    title: <span class="visually-hidden">log</span>,
    cell: ({ job_id: job }) => (
      <Button
        aria-pressed={state.replica.value === job}
        aria-label={`Log of ${job}`}
        onClick={() => openReplica(state.replica.peek() === job ? "" : job)}
      >
        Log
      </Button>
    ),
  },
];

function Replicas({ row }: { row: Service }) {
  const { running, last_dead_job_id: dead } = row;
  const job = state.replica.value;
  const openReplicaRecord = running.find(({ job_id: id }) => id === job);
  return (
    <section class="stack" aria-labelledby="replicas-title">
      <div class="row">
        <h3 class="grow" id="replicas-title">
          Replicas
        </h3>
        {dead && (
          <Button aria-pressed={job === dead} onClick={() => openReplica(job === dead ? "" : dead)}>
            Log of the replica that died last
          </Button>
        )}
      </div>
      <div class="ages">
        <Table
          label="Replicas"
          columns={COLUMNS}
          rows={running}
          rowKey={({ job_id: id }) => id}
          openKey={job}
          class="cards service-table"
          empty={<p class="soft">None.</p>}
        />
      </div>
      {job && (openReplicaRecord || job === dead) && (
        <section class="part stack" aria-label={`Log of ${job}`}>
          {openReplicaRecord && !canWriteLog(openReplicaRecord) ? (
            <p class="soft">The replica writes no log while it is {openReplicaRecord.state}.</p>
          ) : (
            <LogView
              key={`${job} ${Boolean(openReplicaRecord)}`}
              job={job}
              unit={0}
              running={Boolean(openReplicaRecord)}
            />
          )}
        </section>
      )}
      {job && !openReplicaRecord && job !== dead && (
        <p class="soft">The replica {job} has stopped, and its log was deleted.</p>
      )}
    </section>
  );
}
