/** Stored files of the user's tenant: inputs and outputs of jobs. */

import { useSignal } from "@preact/signals";
import { jobAddress } from "../../../kinds";
import { get, hasScope, type Artifact } from "../../../lib/api";
import { formatBytes, formatInteger } from "../../../lib/format";
import { shortId } from "../../../lib/naming";
import { Button } from "../../../ui/button";
import { EmptyMessage, numberColumn, type Column } from "../../../ui/table";
import { ManagedList } from "./list";
import { Moment } from "./tokens";

/** Number of artifacts that are loaded at once. */
const PAGE = 200;

const COLUMNS: Column<Artifact>[] = [
  {
    id: "id",
    title: "ID",
    cell: ({ artifact_id: id }) => <code title={id}>{shortId(id)}</code>,
  },
  { id: "names", title: "names", canWrap: true, cell: ({ names }) => names.join(", ") },
  numberColumn("files", "files", ({ files }) => formatInteger(files)),
  numberColumn("size", "size", ({ bytes }) => formatBytes(bytes)),
  { id: "created", title: "created", cell: ({ created }) => <Moment at={created} /> },
  { id: "held", title: "used by", canWrap: true, cell: ({ held_by: holders }) => <Holders holders={holders} /> },
];

function Holders({ holders }: { holders: readonly string[] }) {
  const [first, ...others] = holders;
  if (!first) return null;
  const job = /^job:(.+)$/.exec(first)?.[1];
  return (
    <>
      {job ? <a href={jobAddress(job)}>job {shortId(job)}</a> : first}
      {others.length > 0 && ` and ${formatInteger(others.length)} more`}
    </>
  );
}

export function Artifacts() {
  const pages = useSignal(1);
  const hasMore = useSignal(false);
  const load = async (signal: AbortSignal) => {
    const rows: Artifact[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < pages.peek(); page += 1) {
      const part = await get<{ artifacts: Artifact[]; cursor?: string }>(
        "/api/artifacts",
        { limit: PAGE, cursor },
        signal,
      );
      rows.push(...part.artifacts);
      cursor = part.cursor;
      if (!cursor) break;
    }
    hasMore.value = cursor !== undefined;
    return rows;
  };
  return (
    <>
      <ManagedList
        key={pages.value}
        title="Artifacts"
        noun="artifact"
        load={load}
        columns={COLUMNS}
        rowKey={({ artifact_id: id }) => id}
        nameOf={({ artifact_id: id, names }) => names[0] ?? shortId(id)}
        empty={
          <EmptyMessage title="No artifact yet">
            <p>Artifacts are the files that jobs read and write. To upload a folder from a shell:</p>
            <pre>cluster artifact put data --name data</pre>
          </EmptyMessage>
        }
        {...(hasScope("submit") && {
          deletion: {
            verb: "Delete",
            done: "Deleted",
            path: ({ artifact_id: id }: Artifact) => `/api/artifacts/${id}`,
            consequence: "The artifact loses its names, and its files are deleted ten minutes later.",
          },
          canDelete: ({ held_by: holders }: Artifact) => !holders.length,
        })}
      />
      {hasMore.value && (
        <p>
          <Button onClick={() => (pages.value += 1)}>Show more</Button>
        </p>
      )}
    </>
  );
}
