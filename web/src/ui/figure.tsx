/** A picture with a description and a table of its data (key T). */

import { signal } from "@preact/signals";
import type { ComponentChildren, Ref } from "preact";
import { Button } from "./button";
import type { Draw } from "./canvas";
import { fileName, offerPicture } from "./picture";

/** True while tables are shown instead of pictures. */
export const isTableMode = signal(false);

/** Maximum number of rows in such a table. */
const MAX_ROWS = 500;

export interface DataTable {
  head: readonly string[];
  rows: readonly (readonly (string | number)[])[];
}

interface FigureProps {
  title?: ComponentChildren;
  /** Description of the picture, kept up to date. */
  summary: string;
  getTable: () => DataTable;
  children: ComponentChildren;
  /** Content next to the title. */
  note?: ComponentChildren;
  /** Draws the picture for a file with this title; without it, the picture cannot be saved. */
  picture?: { title: string; draw: Draw };
  class?: string;
}

export function Figure({ title, summary, getTable, children, note, picture, class: extra }: FigureProps) {
  return (
    <figure class={`figure ${extra ?? ""}`}>
      {title && (
        <div class="caption">
          <h3>{title}</h3>
          {note}
          {picture && !isTableMode.value && <SaveButton {...picture} summary={summary} />}
        </div>
      )}
      {isTableMode.value ? <DataTableView {...getTable()} label={summary} /> : children}
      <figcaption class="visually-hidden">{summary}</figcaption>
    </figure>
  );
}

/** Button that saves the redrawn picture. */
function SaveButton({ title, draw, summary }: { title: string; draw: Draw; summary: string }) {
  const open = (event: MouseEvent) => {
    const canvas = (event.currentTarget as HTMLElement).closest("figure")?.querySelector("canvas");
    if (!canvas) return;
    const { clientWidth: width, clientHeight: height } = canvas;
    offerPicture(fileName(title), { title, lines: [summary], width, height, draw });
  };
  return (
    <Button class="link small save" aria-label={`Save ${title} as a file`} onClick={open}>
      Save
    </Button>
  );
}

function DataTableView({ head, rows, label }: DataTable & { label: string }) {
  return (
    <div class="twin" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((title) => (
              <th scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td class="num" key={column}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MAX_ROWS && (
        <p class="soft small">
          The first {MAX_ROWS} of {rows.length} rows.
        </p>
      )}
      {rows.length === 0 && <p class="soft small">Nothing to show.</p>}
    </div>
  );
}

/** Canvas of a figure with a label for screen readers. */
export function Canvas({
  summary,
  canvasRef,
  class: extra,
}: {
  summary: string;
  canvasRef: Ref<HTMLCanvasElement>;
  class?: string;
}) {
  return <canvas ref={canvasRef} role="img" aria-label={summary} class={extra} />;
}
