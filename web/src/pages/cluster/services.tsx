/** List of services, or one service with its replicas, logs and playground. */

import "./services.css";
import { useLayoutEffect } from "preact/hooks";
import { canOnlyInfer, session, type Service } from "../../lib/api";
import { formatCompact, formatInteger, formatRate, formatSeconds } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { clusterTime, connection, knownUntil } from "../../lib/live";
import { TextButton } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { lazy } from "../../ui/lazy";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { Playground } from "./playground";
import { usePolling } from "./model/polling";
import { selectModel, loadModels, formatModel, formatReadiness, explainState, loadServices } from "./model/services";
import { openService, state } from "./model/state";

const Models = lazy(() => import("./models").then((part) => part.Models));
const ServicePart = lazy(() => import("./service").then((part) => part.ServiceView));

/** Interval in seconds between requests for the list. */
const REFRESH_SECONDS = 3;

export function Services() {
  if (canOnlyInfer.value) return <ModelsOnly />;
  const name = state.service.value;
  return name ? <ServicePart name={name} key={name} /> : <ServiceList />;
}

const COLUMNS: Column<Service>[] = [
  {
    id: "name",
    title: "service",
    canWrap: true,
    cell: ({ name }) => <TextButton onClick={() => openService(name)}>{name}</TextButton>,
  },
  { id: "state", title: "state", canWrap: true, cell: (row) => <Health service={row} /> },
  {
    id: "engine",
    title: "engine and model",
    canWrap: true,
    cell: ({ engine, model }) => (
      <>
        {engine} <span class="soft">{formatModel(model)}</span>
      </>
    ),
  },
  { id: "replicas", title: "replicas", cell: (row) => <span class="num">{formatReadiness(row)}</span> },
  numberColumn("now", "requests now", (row) => formatInteger(row.requests)),
  numberColumn("rate", "requests/s", ({ last_minute: lately }) => formatCompact(lately.requests_per_second)),
  numberColumn("time", "median latency", ({ last_minute: lately }) => formatSeconds(lately.median_seconds)),
  numberColumn("first", "first token", ({ last_minute: lately }) => formatSeconds(lately.median_first_token_seconds)),
  numberColumn("tokens", "tokens/s", ({ last_minute: lately }) => formatCompact(lately.answer_tokens_per_second)),
];

/** State in one word, and its reason. */
function Health({ service: row }: { service: Service }) {
  return (
    <>
      <StateLabel state={row.state} />
      <div class="small soft">{explainState(row, clusterTime(knownUntil.value))}</div>
    </>
  );
}

function ServiceList() {
  const { value, problem } = usePolling("services", REFRESH_SECONDS, loadServices).value;
  if (!value && problem) return <ErrorMessage subject="List of services" problem={problem} />;
  if (!value) return <LoadingRows rows={6} />;
  const total = value.reduce((sum, { last_minute: lately }) => sum + lately.requests_per_second, 0);
  return (
    <section class="stack services">
      {problem && connection.value === "live" && <ErrorMessage subject="List of services" problem={problem} />}
      <div class="row">
        <h2 class="grow">
          Services <span class="num soft">{formatInteger(value.length)}</span>
        </h2>
        {value.length > 0 && <span class="soft num">{formatRate(total, "requests")} in the last minute</span>}
      </div>
      <div class="ages">
        <Table
          label="Services"
          columns={COLUMNS}
          rows={value}
          rowKey={(row) => row.name}
          empty={<NoServices />}
          class="cards service-table"
        />
      </div>
      <Models onServed={openService} />
    </section>
  );
}

function NoServices() {
  return (
    <EmptyMessage title="No service yet">
      <p>
        A service runs an engine with a model and answers requests with the OpenAI API. To start a service from a shell:
      </p>
      <pre>
        {[
          "./deploy-cluster.sh local",
          "cluster serve model.gguf --name chat --wait",
          `curl -s ${location.origin}/v1/chat/completions -H "Authorization: Bearer $TOKEN" \\`,
          "    -H 'Content-Type: application/json' \\",
          `    -d '{"model": "chat", "messages": [{"role": "user", "content": "hello"}]}'`,
        ].join("\n")}
      </pre>
      <p>Starting a service requires a token with the scope run; sending requests requires the scope infer.</p>
    </EmptyMessage>
  );
}

// -- users with only the scope infer --------------------------------------------------------------------------------

function ModelsOnly() {
  const { value: list, problem, repeat: again } = useRequest(loadModels, [session.value?.token_id]);
  useLayoutEffect(() => bindShortcuts({ u: { text: "reload the list of models", run: again } }), []);
  if (problem) return <ErrorMessage subject="List of models" problem={problem} onRetry={again} />;
  if (!list) return <LoadingRows rows={3} />;
  const model = selectModel(list, state.service.value)?.id;
  if (!model) return <EmptyMessage title="No service of this tenant serves a model yet" />;
  return (
    <section class="stack services">
      <label class="row">
        Model
        <select value={model} onChange={(event) => openService(event.currentTarget.value)}>
          {list.map(({ id, ready }) => (
            <option value={id} key={id}>
              {id}
              {ready ? "" : " (no replica is ready)"}
            </option>
          ))}
        </select>
      </label>
      <Playground model={model} />
    </section>
  );
}
