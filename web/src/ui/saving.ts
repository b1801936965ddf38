/** The picture that somebody wants as a file; the page asks in which form, and writes it. */

import { signal } from "@preact/signals";
import type { Draw } from "./canvas";

export interface Picture {
  title: string;
  /** Parameters and whatever else makes it possible to draw it again; long lines are broken. */
  lines: readonly string[];
  /** Size in pixels of the page. */
  width: number;
  height: number;
  /** Draws it on nothing, at its own place and size. */
  draw: Draw;
}

export interface Offer {
  /** Of the file, without its ending. */
  name: string;
  picture: Picture;
}

export const offered = signal<Offer | undefined>(undefined);

/** Asks in which form the picture is to be saved. */
export function offer(name: string, picture: Picture): void {
  offered.value = { name, picture };
}

/** A text as part of a file's name. */
export function fileName(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 60);
}

/** A text in lines of at most `width`; a word that is wider stands alone. */
export function broken(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && measure(longer) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
