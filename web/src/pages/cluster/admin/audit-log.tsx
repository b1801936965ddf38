/** The newest entries of the audit log: who changed what. */

import { get } from "../../../lib/api";
import { formatInteger } from "../../../lib/format";
import { EmptyMessage, numberColumn, type Column } from "../../../ui/table";
import { parseEntries, type AuditEntry } from "../model/audit";
import { ManagedList } from "./list";
import { Moment } from "./tokens";

const NEWEST = 200;

const COLUMNS: Column<AuditEntry>[] = [
  numberColumn("number", "entry", ({ seq }) => formatInteger(seq)),
  { id: "time", title: "time", cell: ({ time }) => <Moment at={time} /> },
  { id: "tenant", title: "tenant", cell: ({ tenant }) => tenant },
  { id: "token", title: "token", cell: ({ token }) => <code>{token}</code> },
  { id: "action", title: "action", cell: ({ action }) => action },
  { id: "subject", title: "subject", canWrap: true, cell: ({ subject }) => <code>{subject}</code> },
  { id: "outcome", title: "outcome", canWrap: true, cell: ({ outcome }) => outcome },
];

export function AuditLog() {
  return (
    <ManagedList
      title="Audit log"
      noun="entry"
      load={async (signal) =>
        parseEntries((await get<{ lines: string[] }>("/api/audit", { limit: NEWEST }, signal)).lines)
      }
      columns={COLUMNS}
      rowKey={({ seq }) => String(seq)}
      nameOf={({ seq }) => String(seq)}
      note={
        <p class="soft">
          The newest {NEWEST} entries. To verify the chain of all entries: <code>cluster audit --verify</code>
        </p>
      }
      empty={<EmptyMessage title="No entry yet" />}
    />
  );
}
