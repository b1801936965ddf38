/** A picture with a description and a table of its data (key T). */

import { signal } from "@preact/signals";
import type { ComponentChildren, Ref } from "preact";
import { Button } from "./button";
import type { Draw } from "./canvas";
import { fileName, offer } from "./saving";

/** True while tables are shown instead of pictures. */
export const tables = signal(false);

/** Maximum number of rows in such a table. */
const MOST_ROWS = 500;

export interface Twin {
  head: readonly string[];
  rows: readonly (readonly (string | number)[])[];
}

interface FigureProps {
  title?: ComponentChildren;
  /** Description of the picture, kept up to date. */
  summary: string;
  twin: () => Twin;
  children: ComponentChildren;
  /** Content next to the title. */
  note?: ComponentChildren;
  /** Draws the picture for a file with this title; without it, the picture cannot be saved. */
  saved?: { title: string; draw: Draw };
  class?: string;
}

export function Figure({ title, summary, twin, children, note, saved, class: extra }: FigureProps) {
  return (
    <figure class={`figure ${extra ?? ""}`}>
      {title && (
        <div class="caption">
          <h3>{title}</h3>
          {note}
          {saved && !tables.value && <Save {...saved} summary={summary} />}
        </div>
      )}
      {tables.value ? <TwinTable {...twin()} label={summary} /> : children}
      <figcaption class="visually-hidden">{summary}</figcaption>
    </figure>
  );
}

/** Button that saves the redrawn picture. */
function Save({ title, draw, summary }: { title: string; draw: Draw; summary: string }) {
  const open = (event: MouseEvent) => {
    const canvas = (event.currentTarget as HTMLElement).closest("figure")?.querySelector("canvas");
    if (!canvas) return;
    const { clientWidth: width, clientHeight: height } = canvas;
    offer(fileName(title), { title, lines: [summary], width, height, draw });
  };
  return (
    <Button class="link small save" aria-label={`Save ${title} as a file`} onClick={open}>
      Save
    </Button>
  );
}

function TwinTable({ head, rows, label }: Twin & { label: string }) {
  return (
    <div class="twin" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((each) => (
              <th scope="col" key={each}>
                {each}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, place) => (
            <tr key={place}>
              {row.map((cell, column) => (
                <td class="num" key={column}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && (
        <p class="soft small">
          The first {MOST_ROWS} of {rows.length} rows.
        </p>
      )}
      {rows.length === 0 && <p class="soft small">Nothing to show.</p>}
    </div>
  );
}

/** Canvas of a figure with a label for screen readers. */
export function Canvas({ summary, at, class: extra }: { summary: string; at: Ref<HTMLCanvasElement>; class?: string }) {
  return <canvas ref={at} role="img" aria-label={summary} class={extra} />;
}
