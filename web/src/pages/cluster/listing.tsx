/** A list that is refreshed at an interval: heading, error message and table. */

import type { ComponentChildren } from "preact";
import { formatInteger } from "../../lib/format";
import { connection } from "../../lib/live";
import { LoadingRows, Table, type Column } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import type { PollState } from "./model/polling";

interface Props<T> {
  title: string;
  pollState: PollState<readonly T[]>;
  columns: readonly Column<T>[];
  /** Key of the open row. */
  openKey: string;
  empty: ComponentChildren;
  /** Content next to the heading. */
  action?: ComponentChildren;
  /** Content below the table. */
  children: ComponentChildren;
}

export function PolledTable<T extends { name: string }>(props: Props<T>) {
  const { title, columns, openKey: open, empty, action: act, children } = props;
  const { value, problem } = props.pollState;
  const id = `${title.toLowerCase()}-title`;
  return (
    <section class="stack" aria-labelledby={id}>
      <div class="row">
        <h2 id={id} class="grow">
          {title} <span class="num soft">{value && formatInteger(value.length)}</span>
        </h2>
        {act}
      </div>
      {problem && connection.value === "live" && (
        <ErrorMessage subject={`List of ${title.toLowerCase()}`} problem={problem} />
      )}
      {value ? (
        <div class="ages">
          <Table
            label={title}
            columns={columns}
            rows={value}
            rowKey={(row) => row.name}
            openKey={open}
            class="cards"
            empty={empty}
          />
        </div>
      ) : (
        !problem && <LoadingRows rows={3} />
      )}
      {children}
    </section>
  );
}
