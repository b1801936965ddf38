/** List of all kinds with links to their pages. */

import { formAddress, KINDS } from "../../kinds";
import type { Kind } from "../../lib/api";
import { formatActive } from "./model/active";
import { snapshot } from "../../lib/live";
import { Table, type Column, numberColumn } from "../../ui/table";
import { showKind } from "./model/state";

function KindName({ kind: { type } }: { kind: Kind }) {
  const open = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    showKind(type);
  };
  return (
    <a class="mono" href={formAddress(type)} onClick={open}>
      {type}
    </a>
  );
}

function PageLink({ kind }: { kind: Kind }) {
  const page = KINDS[kind.type]?.page;
  return page ? <a href={page.address}>{page.title}</a> : <span class="soft">none</span>;
}

function describeActive(type: string): string {
  const { jobs, status } = snapshot.value;
  return formatActive(
    type,
    [...jobs.values()].map((job) => job.value),
    status,
  );
}

const COLUMNS: Column<Kind>[] = [
  { id: "name", title: "kind", cell: (kind) => <KindName kind={kind} /> },
  { id: "summary", title: "description", canWrap: true, cell: (kind) => kind.summary },
  { id: "page", title: "page", cell: (kind) => <PageLink kind={kind} /> },
  numberColumn("active", "waiting or running", (kind) => describeActive(kind.type)),
];

export function KindList({ kinds }: { kinds: readonly Kind[] }) {
  return (
    <div class="stack">
      <h1>Run a job</h1>
      <p class="soft">
        Choose what to run. To run a program, choose <code>command</code>.
      </p>
      <Table label="Kinds of job" columns={COLUMNS} rows={kinds} rowKey={(kind) => kind.type} class="cards" />
    </div>
  );
}
