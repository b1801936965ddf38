/** A long table in a scrolling box that renders only visible rows. */

import "./rows.css";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { scrollTopOf, computeVisibleRows } from "../lib/visible-rows";
import type { Column } from "./table";

/** Height of a row and of the box in pixels; touch screens need larger rows. */
const ROW = matchMedia("(pointer: coarse)").matches ? 44 : 30;
const TALL = 400;

interface RowsProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  name: (row: T) => string | number;
  /** Key of the open row. */
  open?: string | number | undefined;
  /** Height of the box in pixels. */
  tall?: number;
}

export function Rows<T>({ label, columns, rows, name, open, tall = TALL }: RowsProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const { first, last, height } = computeVisibleRows(rows.length, ROW, top.value, tall);
  useLayoutEffect(() => {
    const place = open === undefined ? -1 : rows.findIndex((row) => name(row) === open);
    const seen = place * ROW >= top.peek() && (place + 2) * ROW <= top.peek() + tall;
    if (place >= 0 && !seen && box.current) box.current.scrollTop = scrollTopOf(place, rows.length, ROW, tall);
  }, [open]);
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
      style={{ maxHeight: `${tall}px`, "--row": `${ROW}px` }}
      onScroll={() => (top.value = box.current?.scrollTop ?? 0)}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={column.end ? "end" : ""}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && gap(first * ROW)}
          {rows.slice(first, last).map((row, place) => (
            <tr key={name(row)} aria-rowindex={first + place + 2} data-open={name(row) === open ? "true" : undefined}>
              {columns.map((column) => (
                <td key={column.id} class={column.end ? "end" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {last < rows.length && gap(height - last * ROW)}
        </tbody>
      </table>
    </div>
  );
}
