/** The picture to save; the page asks for the format and writes the file. */

import { signal } from "@preact/signals";
import type { Draw } from "./canvas";

export interface Picture {
  title: string;
  /** Parameters and other details for reproducing the picture; long lines are wrapped. */
  lines: readonly string[];
  /** Size in page pixels. */
  width: number;
  height: number;
  /** Draws the picture on a transparent canvas. */
  draw: Draw;
}

export interface SavablePicture {
  /** File name without its extension. */
  name: string;
  picture: Picture;
}

export const pictureToSave = signal<SavablePicture | undefined>(undefined);

/** Ask for the format and save the picture. */
export function offerPicture(name: string, picture: Picture): void {
  pictureToSave.value = { name, picture };
}

/** Convert a text to a part of a file name. */
export function fileName(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 60);
}

/** Wrap a text to lines of up to `width`; a longer word has its own line. */
export function wrapText(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const extended = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && measure(extended) <= width) lines[lines.length - 1] = extended;
    else lines.push(word);
  }
  return lines;
}
