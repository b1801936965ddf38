/** API tokens: who can use the cluster, and for what. */

import { useSignal } from "@preact/signals";
import { get, post, type Token } from "../../../lib/api";
import { formatTimestamp } from "../../../lib/naming";
import { CopyLine } from "../../../ui/copy-button";
import { Dialog } from "../../../ui/dialog";
import type { Schema } from "../../../ui/fields";
import { EmptyMessage, type Column } from "../../../ui/table";
import { FormDialog } from "./form-dialog";
import { ManagedList } from "./list";

const SCOPES = ["read", "submit", "run", "infer", "operate", "admin", "worker", "join"];

const FORM: Schema = {
  properties: {
    name: { type: "string", description: "Purpose of the token, such as laptop-anna" },
    scopes: {
      type: "array",
      items: { enum: SCOPES },
      default: ["read", "submit"],
      description:
        "read: see jobs; submit: submit and control own jobs; run: run programs; infer: use models; operate: control " +
        "all jobs and workers; admin: everything; worker and join: machines",
    },
    tenant: { type: "string", default: "default", description: "Tenant to which the token's jobs belong" },
    days: { type: "number", default: null, description: "Days until the token expires; empty: never" },
    labels: {
      type: "array",
      items: { type: "string" },
      default: [],
      description: "Labels of a machine; only with the scope worker or join",
    },
  },
  required: ["name"],
};

const COLUMNS: Column<Token>[] = [
  { id: "name", title: "name", cell: ({ name }) => name },
  { id: "tenant", title: "tenant", cell: ({ tenant }) => tenant },
  { id: "scopes", title: "scopes", canWrap: true, cell: ({ scopes }) => scopes.join(", ") },
  { id: "labels", title: "labels", canWrap: true, cell: ({ labels }) => labels.join(", ") },
  { id: "created", title: "created", cell: ({ created }) => <Moment at={created} /> },
  { id: "used", title: "last used", cell: ({ used }) => <Moment at={used} never="never" /> },
  { id: "expires", title: "expires", cell: ({ expires }) => <Moment at={expires} never="never" isDeadline /> },
  { id: "token", title: "ID", cell: ({ id }) => <code>{id}</code> },
];

/** A time, or a text if it is absent. A deadline that has passed is marked. */
export function Moment({ at, never = "", isDeadline }: { at: string | null; never?: string; isDeadline?: boolean }) {
  if (!at) return <span class="soft">{never}</span>;
  const hasPassed = isDeadline && Date.parse(at) < Date.now();
  return (
    <span class={hasPassed ? "bad num" : "num"} title={at}>
      {hasPassed && "expired "}
      {formatTimestamp(at)}
    </span>
  );
}

export function Tokens() {
  /** The new token, until its dialog is closed. */
  const secret = useSignal("");
  const create = async ({ days, ...values }: Record<string, unknown>) => {
    const lifetime = typeof days === "number" ? { ttl_seconds: Math.round(days * 86_400) } : {};
    const created = await post<{ token: string }>("/api/tokens", {
      scopes: FORM.properties?.scopes?.default,
      ...values,
      ...lifetime,
    });
    secret.value = created.token;
  };
  return (
    <>
      <ManagedList
        title="Tokens"
        noun="token"
        load={async (signal) => (await get<{ tokens: Token[] }>("/api/tokens", {}, signal)).tokens}
        columns={COLUMNS}
        rowKey={({ id }) => id}
        nameOf={({ name }) => name}
        empty={
          <EmptyMessage title="No token yet">
            <p>Programs, other people and machines use the cluster with a token.</p>
          </EmptyMessage>
        }
        deletion={{
          verb: "Revoke",
          done: "Revoked",
          path: ({ id }) => `/api/tokens/${id}`,
          consequence: "Within a second, requests with this token fail, and browsers that use it are logged out.",
        }}
        add="New token"
        form={(close) => (
          <FormDialog title="New token" schema={FORM} submitLabel="Create token" send={create} onClose={close} />
        )}
      />
      {secret.value && (
        <Dialog title="Token created" onClose={() => (secret.value = "")}>
          <p>Copy the token now. It is not shown again, because the cluster stores only a digest of it.</p>
          <CopyLine text={secret.value} name="token" />
        </Dialog>
      )}
    </>
  );
}
