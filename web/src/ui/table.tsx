/** A table whose rows keep their positions. */

import type { ComponentChildren } from "preact";

export interface Column<T> {
  id: string;
  title: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  /** True to align numbers at the end. */
  isNumeric?: boolean;
  canWrap?: boolean;
}

/** Return a column of numbers, which are aligned at the end. */
export function numberColumn<T>(id: string, title: string, text: (row: T) => ComponentChildren): Column<T> {
  return { id, title, isNumeric: true, cell: (row) => <span class="num">{text(row)}</span> };
}

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string;
  /** Content for an empty table. */
  empty?: ComponentChildren;
  openKey?: string | undefined;
  class?: string;
}

function columnClass<T>(column: Column<T>): string {
  return [column.isNumeric ? "end" : "", column.canWrap ? "wrap" : "", `col-${column.id}`].filter(Boolean).join(" ");
}

export function Table<T>({ label, columns, rows, rowKey, empty, openKey, class: extra }: TableProps<T>) {
  if (!rows.length && empty) return <>{empty}</>;
  return (
    <div class={`scroll ${extra ?? ""}`} role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={columnClass(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} data-row={rowKey(row)} data-open={rowKey(row) === openKey ? "true" : undefined}>
              {columns.map((column) => (
                <td
                  key={column.id}
                  class={columnClass(column)}
                  data-title={typeof column.title === "string" ? column.title : undefined}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Placeholder lines for rows that are still loading. */
export function LoadingRows({ rows = 5 }: { rows?: number }) {
  return (
    <div aria-busy="true">
      <span class="visually-hidden">Loading</span>
      {Array.from({ length: rows }, (_, index) => (
        <span class="skeleton" key={index} style={{ width: `${90 - (index % 4) * 12}%` }} />
      ))}
    </div>
  );
}

/** Message for an empty list, with advice. */
export function EmptyMessage({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children}
    </div>
  );
}
