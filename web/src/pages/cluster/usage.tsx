/** Usage of tenants in the last days; admins see all tenants. */

import { get, session, type TenantUsage } from "../../lib/api";
import { formatCompact, formatSeconds } from "../../lib/format";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { usePolling } from "./model/polling";

const USAGE_DAYS = 7;
const REFRESH_SECONDS = 30;

function sumValues(values: Record<string, number | string>): number {
  return Object.values(values).reduce<number>((total, value) => total + Number(value), 0);
}

function formatByKind(values: Record<string, number | string>): string {
  return Object.entries(values)
    .map(([kind, count]) => `${kind} ${formatCompact(count)}`)
    .join(", ");
}

const COLUMNS: Column<TenantUsage>[] = [
  { id: "day", title: "day (UTC)", cell: (row) => <span class="num">{row.day}</span> },
  { id: "tenant", title: "tenant", cell: (row) => <span class="mono">{row.tenant}</span> },
  numberColumn("lanes", "lane time", (row) => formatSeconds(sumValues(row.lane_seconds))),
  numberColumn("gpus", "GPU time", (row) => (row.device_seconds ? formatSeconds(row.device_seconds) : "")),
  numberColumn("energy", "energy", (row) => (row.joules === null ? "" : `${formatCompact(row.joules)} J`)),
  numberColumn("jobs", "jobs done", (row) => formatCompact(sumValues(row.jobs))),
  { id: "units", title: "units", canWrap: true, cell: (row) => formatByKind(row.units) },
];

export function Usage() {
  const answer = usePolling("usage", REFRESH_SECONDS, (control) =>
    get<{ usage: TenantUsage[] }>("/api/usage", { days: USAGE_DAYS }, control),
  );
  const { value, problem } = answer.value;
  if (problem) return <ErrorMessage subject="usage" problem={problem} />;
  if (!value) return <LoadingRows rows={2} />;
  const { tenant, scopes } = session.value ?? {};
  return (
    <>
      <Table
        label="Usage by day"
        columns={COLUMNS}
        rows={value.usage}
        rowKey={(row) => `${row.day} ${row.tenant}`}
        empty={<EmptyMessage title={`No usage in the last ${USAGE_DAYS} days`} />}
        class="cards"
      />
      {scopes && !scopes.includes("admin") && (
        <p class="soft small">Only tenant {tenant}; a login with the scope admin shows all tenants.</p>
      )}
    </>
  );
}
