/** Stored models, with forms to download and serve them. */

import { useSignal } from "@preact/signals";
import { get, post, type Model } from "../../lib/api";
import { formatBytes } from "../../lib/format";
import { Button } from "../../ui/button";
import type { Schema } from "../../ui/fields";
import { EmptyMessage, numberColumn, type Column } from "../../ui/table";
import { showToast } from "../../ui/toast";
import { FormDialog } from "./admin/form-dialog";
import { ManagedList } from "./admin/list";
import { estimateService, hasScope } from "./model/services";
import { openWorkflow } from "./model/state";

const DOWNLOAD: Schema = {
  properties: {
    model: { type: "string", description: "Name for the model, such as qwen" },
    source: { type: "string", description: "https://..., hf://ORG/REPO[/FILE] or s3://BUCKET/KEY" },
    sha256: { type: "string", default: null, description: "Expected SHA-256 of a single file" },
  },
  required: ["model", "source"],
};

const SERVE: Schema = {
  properties: {
    name: { type: "string", description: "Clients use it as the model's name" },
    replicas: { type: "integer", minimum: 0, maximum: 100, default: 1, description: "Engines that run at once" },
    gpus: { type: "integer", minimum: 0, default: 0, description: "GPUs of each replica" },
    context: { type: "integer", minimum: 1, default: null, description: "Maximum tokens of prompt and answer" },
    idle_seconds: { type: "integer", minimum: 5, default: null, description: "Stop after this time without requests" },
  },
};

const COLUMNS: Column<Model>[] = [
  { id: "name", title: "model", cell: ({ model_name: name }) => name },
  numberColumn("size", "size", ({ bytes, status }) => (status === "ready" ? formatBytes(bytes) : "")),
  { id: "state", title: "state", cell: ({ status }) => (status === "ready" ? "stored" : "not downloaded") },
  { id: "places", title: "copies", canWrap: true, cell: ({ locations }) => locations.join(", ") },
  { id: "services", title: "services", canWrap: true, cell: ({ services }) => services.join(", ") },
];

/** Return the name of a service for a model, without characters that services cannot have. */
function serviceName(model: string): string {
  return model
    .replace(/[^a-z0-9-]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 63);
}

/** Return the body of POST /api/services for the values of the form. */
function buildService(model: string, values: Record<string, unknown>) {
  const { name, gpus, context, ...rest } = values;
  return {
    name: name ?? serviceName(model),
    model,
    ...rest,
    ...(context === undefined ? {} : { parameters: { context } }),
    ...(gpus ? { requirements: { gpus } } : {}),
  };
}

export function Models({ onServed }: { onServed: (name: string) => void }) {
  /** Model for which the form is open. */
  const chosen = useSignal("");
  const canRun = hasScope("run");
  const download = async ({ model, ...body }: Record<string, unknown>) => {
    const path = `/api/v1/models/${encodeURIComponent(String(model ?? ""))}/download`;
    const { task_id: task } = await post<{ task_id: string }>(path, body);
    showToast(`Downloading ${String(model)}`, { text: "Show", run: () => openWorkflow(task) });
  };
  const serve: Column<Model> = {
    id: "serve",
    title: <span class="visually-hidden">serve</span>,
    cell: ({ model_name: name, status }) =>
      status === "ready" && (
        <Button class="primary" aria-label={`Serve ${name}`} onClick={() => (chosen.value = name)}>
          Serve
        </Button>
      ),
  };
  return (
    <>
      <ManagedList
        title="Models"
        noun="model"
        load={async (signal) => (await get<{ models: Model[] }>("/api/v1/models", { limit: 200 }, signal)).models}
        columns={canRun ? [...COLUMNS, serve] : COLUMNS}
        rowKey={({ model_name: name }) => name}
        nameOf={({ model_name: name }) => name}
        empty={
          <EmptyMessage title="No model yet">
            <p>Download a model here, or upload a file from a shell:</p>
            <pre>cluster artifact put model.gguf --name chat</pre>
          </EmptyMessage>
        }
        {...(canRun && {
          deletion: {
            verb: "Delete",
            done: "Deleted",
            path: ({ model_name: name }: Model) => `/api/v1/models/${encodeURIComponent(name)}`,
            consequence: "Its files are deleted. A model that a service uses cannot be deleted.",
          },
          add: "Download model",
          form: (close: () => void) => (
            <FormDialog
              title="Download a model"
              schema={DOWNLOAD}
              submitLabel="Download"
              send={download}
              onClose={close}
            />
          ),
        })}
      />
      {chosen.value && (
        <FormDialog
          title={`Serve ${chosen.value}`}
          schema={SERVE}
          initial={{ name: serviceName(chosen.value) }}
          submitLabel="Serve model"
          check={{ label: "Estimate memory", run: (values) => estimateService(buildService(chosen.value, values)) }}
          send={async (values) => {
            const { name } = await post<{ name: string }>("/api/services", buildService(chosen.value, values));
            onServed(name);
          }}
          onClose={() => (chosen.value = "")}
        />
      )}
    </>
  );
}
