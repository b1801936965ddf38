/** List of all kinds with links to their pages. */

import { formAddress, KINDS } from "../../kinds";
import { get, type Jobs, type Kind } from "../../lib/api";
import { formatInteger } from "../../lib/format";
import { useRequest } from "../../ui/request";
import { Table, type Column } from "../../ui/table";
import { showKind } from "./model/state";

const ACTIVE_STATES = ["queued", "running", "finishing"];

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

/** Number of waiting and running jobs of a kind. */
function ActiveJobs({ type }: { type: string }) {
  const { value } = useRequest((signal) => get<Jobs>("/api/jobs", { type, state: ACTIVE_STATES, limit: 1 }, signal));
  return <span class="num">{formatInteger(value?.matching)}</span>;
}

const COLUMNS: Column<Kind>[] = [
  { id: "name", title: "kind", cell: (kind) => <KindName kind={kind} /> },
  { id: "summary", title: "description", canWrap: true, cell: (kind) => kind.summary },
  { id: "page", title: "page", cell: (kind) => <PageLink kind={kind} /> },
  { id: "active", title: "waiting or running", isNumeric: true, cell: (kind) => <ActiveJobs type={kind.type} /> },
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
