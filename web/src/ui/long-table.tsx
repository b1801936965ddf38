/** A long table in a scrolling box that renders only visible rows. */

import "./long-table.css";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { scrollTopOf, computeVisibleRows } from "../lib/visible-rows";
import type { Column } from "./table";

/** Height of a row and of the box in pixels; touch screens need larger rows. */
const ROW_HEIGHT = matchMedia("(pointer: coarse)").matches ? 44 : 30;
const MAX_HEIGHT = 400;

interface LongTableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string | number;
  /** Key of the open row. */
  openKey?: string | number | undefined;
  /** Height of the box in pixels. */
  maxHeight?: number;
}

export function LongTable<T>({ label, columns, rows, rowKey, openKey, maxHeight = MAX_HEIGHT }: LongTableProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const { first, last, height } = computeVisibleRows(rows.length, ROW_HEIGHT, top.value, maxHeight);
  useLayoutEffect(() => {
    const index = openKey === undefined ? -1 : rows.findIndex((row) => rowKey(row) === openKey);
    const isVisible = index * ROW_HEIGHT >= top.peek() && (index + 2) * ROW_HEIGHT <= top.peek() + maxHeight;
    if (index >= 0 && !isVisible && box.current)
      box.current.scrollTop = scrollTopOf(index, rows.length, ROW_HEIGHT, maxHeight);
  }, [openKey]);
  const gap = (count: number) => (
    <tr aria-hidden="true" class="gap">
      <td colSpan={columns.length} style={{ height: `${count}px` }} />
    </tr>
  );
  return (
    <div
      class="rows-in-sight"
      role="region"
      aria-label={label}
      tabIndex={0}
      ref={box}
      style={{ maxHeight: `${maxHeight}px`, "--row": `${ROW_HEIGHT}px` }}
      onScroll={() => (top.value = box.current?.scrollTop ?? 0)}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={column.isNumeric ? "end" : ""}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && gap(first * ROW_HEIGHT)}
          {rows.slice(first, last).map((row, index) => (
            <tr
              key={rowKey(row)}
              aria-rowindex={first + index + 2}
              data-open={rowKey(row) === openKey ? "true" : undefined}
            >
              {columns.map((column) => (
                <td key={column.id} class={column.isNumeric ? "end" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {last < rows.length && gap(height - last * ROW_HEIGHT)}
        </tbody>
      </table>
    </div>
  );
}
