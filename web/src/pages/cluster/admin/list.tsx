/** A list of the part Admin: its heading, its rows, and buttons that add and delete rows. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { deleteResource } from "../../../lib/api";
import { formatInteger } from "../../../lib/format";
import { Button } from "../../../ui/button";
import { askConfirmation } from "../../../ui/dialog";
import { ErrorMessage } from "../../../ui/error-message";
import { useRequest } from "../../../ui/request";
import { LoadingRows, Table, type Column } from "../../../ui/table";
import { runAction } from "../../../ui/toast";

/** How rows are deleted. */
interface Deletion<T> {
  /** Verb on the button, such as "Revoke". */
  verb: string;
  /** Past form of the verb, for the notice. */
  done: string;
  path: (row: T) => string;
  /** Consequence, for the confirmation. */
  consequence: string;
}

interface Props<T> {
  title: string;
  /** Name of one row, such as "token". */
  noun: string;
  load: (signal: AbortSignal) => Promise<readonly T[]>;
  columns: readonly Column<T>[];
  /** ID of a row, and the name by which users know it. */
  rowKey: (row: T) => string;
  nameOf: (row: T) => string;
  empty: ComponentChildren;
  deletion?: Deletion<T>;
  canDelete?: (row: T) => boolean;
  /** Label of the button that opens the form, and the form. `row` is the row to change, if any. */
  add?: string;
  form?: (close: () => void, row: T | undefined) => ComponentChildren;
  canEdit?: boolean;
  note?: ComponentChildren;
}

export function ManagedList<T>(props: Props<T>) {
  const { title, noun, rowKey, nameOf, deletion } = props;
  const { value, problem, repeat } = useRequest(props.load);
  /** True or a row while the form is open. */
  const edited = useSignal<{ row: T | undefined } | undefined>(undefined);
  const close = () => {
    edited.value = undefined;
    repeat();
  };
  const remove = async (row: T) => {
    if (!deletion) return;
    const name = nameOf(row);
    const question = {
      title: `${deletion.verb} ${noun} ${name}?`,
      text: deletion.consequence,
      buttonLabel: `${deletion.verb} ${noun}`,
      isDangerous: true,
    };
    if (!(await askConfirmation(question))) return;
    await runAction(`${deletion.verb} ${name}`, `${deletion.done} ${noun} ${name}`, deleteResource(deletion.path(row)));
    repeat();
  };
  const buttons: Column<T> = {
    id: "acts",
    title: <span class="visually-hidden">actions</span>,
    cell: (row) => (
      <span class="row acts">
        {props.canEdit && (
          <Button aria-label={`Edit ${noun} ${nameOf(row)}`} onClick={() => (edited.value = { row })}>
            Edit
          </Button>
        )}
        {deletion && (props.canDelete?.(row) ?? true) && (
          <Button
            class="danger"
            aria-label={`${deletion.verb} ${noun} ${nameOf(row)}`}
            onClick={() => void remove(row)}
          >
            {deletion.verb}
          </Button>
        )}
      </span>
    ),
  };
  return (
    <>
      <div class="row">
        <h2 class="grow">
          {title} <span class="num soft">{value && formatInteger(value.length)}</span>
        </h2>
        <Button onClick={repeat}>Refresh</Button>
        {props.add && (
          <Button class="primary" onClick={() => (edited.value = { row: undefined })}>
            {props.add}
          </Button>
        )}
      </div>
      {props.note}
      {problem && <ErrorMessage subject={title} problem={problem} onRetry={repeat} />}
      {value ? (
        <Table
          label={title}
          columns={deletion || props.canEdit ? [...props.columns, buttons] : props.columns}
          rows={value}
          rowKey={rowKey}
          class="cards"
          empty={props.empty}
        />
      ) : (
        !problem && <LoadingRows rows={3} />
      )}
      {edited.value && props.form?.(close, edited.value.row)}
    </>
  );
}
