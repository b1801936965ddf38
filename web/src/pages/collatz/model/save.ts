/** Pictures that the displayed views can save. */

import { useEffect, useRef } from "preact/hooks";
import { useCanvas, type Draw } from "../../../ui/canvas";
import type { Picture } from "../../../ui/picture";

/** Functions that create the picture of a view, keyed by the view's name. */
export const pictures = new Map<string, () => Picture | undefined>();

/** Register a view's picture while its component is shown. */
export function useSaved(name: string, picture: () => Picture | undefined): void {
  const latest = useRef(picture);
  latest.current = picture;
  useEffect(() => {
    const now = () => latest.current();
    pictures.set(name, now);
    return () => {
      if (pictures.get(name) === now) pictures.delete(name);
    };
  }, []);
}

/** Return a canvas (see useCanvas) that can be saved with a name, a title and a description. */
export function usePicture(
  name: string,
  title: string,
  words: string,
  draw: Draw,
): (element: HTMLCanvasElement | null) => void {
  const canvas = useRef<HTMLCanvasElement | undefined>(undefined);
  useSaved(name, () => {
    if (!canvas.current) return undefined;
    const { clientWidth: width, clientHeight: height } = canvas.current;
    return { title, lines: [words], width, height, draw };
  });
  return useCanvas((context, width, height) => {
    canvas.current = context.canvas;
    draw(context, width, height);
  });
}
