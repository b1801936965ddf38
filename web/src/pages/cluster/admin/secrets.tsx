/** Names of the secrets that programs receive as environment variables. */

import { useSignal } from "@preact/signals";
import { get, put, type Secret } from "../../../lib/api";
import { EmptyMessage, type Column } from "../../../ui/table";
import type { Schema } from "../../../ui/fields";
import { FormDialog } from "./form-dialog";
import { ManagedList } from "./list";
import { Moment } from "./tokens";

const FORM: Schema = {
  properties: { name: { type: "string", description: "Name of the environment variable, such as DATABASE_URL" } },
  required: ["name"],
};

const COLUMNS: Column<Secret>[] = [
  { id: "name", title: "name", cell: ({ name }) => <code>{name}</code> },
  { id: "changed", title: "changed", cell: ({ changed }) => <Moment at={changed} /> },
  {
    id: "key",
    title: "state",
    cell: ({ readable, key }) =>
      readable ? "can be used" : <span class="bad">unreadable: SECRETS_KEY lacks the key {key}</span>,
  },
];

export function Secrets() {
  const isEnabled = useSignal(true);
  const load = async (signal: AbortSignal) => {
    const list = await get<{ secrets: Secret[]; key: string | null }>("/api/secrets", {}, signal);
    isEnabled.value = list.key !== null;
    return list.secrets;
  };
  return (
    <ManagedList
      title="Secrets"
      noun="secret"
      load={load}
      columns={COLUMNS}
      rowKey={({ name }) => name}
      nameOf={({ name }) => name}
      note={
        !isEnabled.value && (
          <p class="trouble">Secrets are disabled. To enable them, set SECRETS_KEY for the coordinators.</p>
        )
      }
      empty={
        <EmptyMessage title="No secret yet">
          <p>Programs receive secrets as environment variables. Values are stored encrypted and are never shown.</p>
        </EmptyMessage>
      }
      deletion={{
        verb: "Delete",
        done: "Deleted",
        path: ({ name }) => `/api/secrets/${name}`,
        consequence: "Programs that start later do not receive it. Running programs keep its value.",
      }}
      add="New secret"
      canEdit
      form={(close, row) => <SecretForm row={row} onClose={close} />}
    />
  );
}

function SecretForm({ row, onClose }: { row: Secret | undefined; onClose: () => void }) {
  const value = useSignal("");
  return (
    <FormDialog
      title={row ? `Secret ${row.name}` : "New secret"}
      schema={row ? {} : FORM}
      submitLabel={row ? "Replace value" : "Create secret"}
      send={({ name }) =>
        put(`/api/secrets/${encodeURIComponent(row?.name ?? String(name ?? ""))}`, { value: value.peek() })
      }
      onClose={onClose}
    >
      <div class="field">
        <label for="secret-value">value</label>
        <input
          id="secret-value"
          type="password"
          autocomplete="off"
          required
          onInput={(event) => (value.value = event.currentTarget.value)}
        />
      </div>
    </FormDialog>
  );
}
