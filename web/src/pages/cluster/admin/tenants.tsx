/** Tenants with their shares, caps and current use. */

import { get, hasScope, put, type Tenant } from "../../../lib/api";
import { formatBytes, formatInteger, formatSeconds } from "../../../lib/format";
import type { Schema } from "../../../ui/fields";
import { numberColumn, type Column } from "../../../ui/table";
import { FormDialog } from "./form-dialog";
import { ManagedList } from "./list";

const SHARES: Record<string, Schema> = {
  weight: { type: "integer", minimum: 1, default: 1, description: "Share of the lanes, relative to other tenants" },
  max_lanes: { type: "integer", minimum: 1, default: null, description: "Lanes at the same time; empty: no limit" },
  max_jobs: {
    type: "integer",
    minimum: 1,
    default: null,
    description: "Waiting and running jobs; later ones are held. Empty: no limit",
  },
  max_units: { default: {}, description: 'Units per day by kind, such as {"command": 1000}; other kinds: no limit' },
  max_gpu_seconds: { type: "integer", minimum: 1, default: null, description: "GPU seconds per day; empty: no limit" },
  max_stored_bytes: {
    type: "integer",
    minimum: 1,
    default: null,
    description: "Bytes of jobs, artifacts and workflows; empty: no limit",
  },
  requires: {
    type: "array",
    items: { type: "string" },
    default: [],
    description: "Labels that a host must have to compute the tenant's jobs",
  },
};
const NAME: Record<string, Schema> = {
  tenant: { type: "string", description: "Lower-case letters, digits and dashes" },
};

function withLimit(used: string, most: string | undefined) {
  return most === undefined ? used : `${used} of ${most}`;
}

const limit = (value: number | null, format: (each: number) => string) => (value === null ? undefined : format(value));

const COLUMNS: Column<Tenant>[] = [
  { id: "name", title: "tenant", cell: ({ tenant }) => tenant },
  numberColumn("weight", "weight", ({ weight }) => formatInteger(weight)),
  numberColumn("lanes", "lanes", (row) => withLimit(formatInteger(row.lanes), limit(row.max_lanes, formatInteger))),
  numberColumn("jobs", "jobs", (row) => withLimit(formatInteger(row.jobs), limit(row.max_jobs, formatInteger))),
  numberColumn("held", "held jobs", ({ backlog }) => formatInteger(backlog)),
  numberColumn("gpu", "GPU time today", (row) =>
    row.max_gpu_seconds === null
      ? "no limit"
      : withLimit(formatSeconds(row.gpu_seconds_today), limit(row.max_gpu_seconds, formatSeconds)),
  ),
  numberColumn("stored", "stored", (row) =>
    row.max_stored_bytes === null
      ? "no limit"
      : withLimit(formatBytes(row.stored_bytes), limit(row.max_stored_bytes, formatBytes)),
  ),
  { id: "requires", title: "required labels", canWrap: true, cell: ({ requires }) => (requires ?? []).join(", ") },
];

/** Return the fields of a tenant that the form changes. Absent limits are omitted. */
function editable(row: Tenant): Record<string, unknown> {
  const values = row as unknown as Record<string, unknown>;
  return Object.fromEntries(
    Object.keys(SHARES)
      .map((name) => [name, values[name]] as const)
      .filter(([, value]) => value !== null && value !== undefined && JSON.stringify(value) !== "{}"),
  );
}

export function Tenants() {
  const isAdmin = hasScope("admin");
  const save = ({ tenant, ...shares }: Record<string, unknown>, name = String(tenant ?? "")) =>
    put(`/api/tenants/${encodeURIComponent(name)}`, { requires: [], ...shares });
  return (
    <ManagedList
      title="Tenants"
      noun="tenant"
      load={async (signal) => (await get<{ tenants: Tenant[] }>("/api/tenants", {}, signal)).tenants}
      columns={COLUMNS}
      rowKey={({ tenant }) => tenant}
      nameOf={({ tenant }) => tenant}
      empty={null}
      {...(isAdmin && {
        add: "New tenant",
        canEdit: true,
        canDelete: ({ tenant }: Tenant) => tenant !== "default",
        deletion: {
          verb: "Delete",
          done: "Deleted",
          path: ({ tenant }: Tenant) => `/api/tenants/${tenant}`,
          consequence: "A tenant with active jobs, workflows, valid tokens or artifacts cannot be deleted.",
        },
        form: (close: () => void, row: Tenant | undefined) => (
          <FormDialog
            title={row ? `Tenant ${row.tenant}` : "New tenant"}
            schema={{ properties: row ? SHARES : { ...NAME, ...SHARES }, required: row ? [] : ["tenant"] }}
            initial={row ? editable(row) : {}}
            submitLabel={row ? "Save" : "Create tenant"}
            send={(values) => save(values, row?.tenant)}
            onClose={close}
          />
        ),
      })}
    />
  );
}
