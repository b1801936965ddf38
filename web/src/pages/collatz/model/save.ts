/** Pictures that a view can save while it is on the page. */

import { useEffect, useRef } from "preact/hooks";
import { useCanvas, type Draw } from "../../../ui/canvas";
import type { Picture } from "../../../ui/saving";

/** Pictures with their title, by the view's name. */
export const pictures = new Map<string, () => Picture | undefined>();

/** Registers a view's picture while the component is there. */
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

/** A canvas as of useCanvas that can be saved under a name, with a title and what it shows in words. */
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
