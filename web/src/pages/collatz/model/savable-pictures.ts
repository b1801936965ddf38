/** Pictures that the displayed views can save. */

import { useEffect, useRef } from "preact/hooks";
import { useCanvas, type Draw } from "../../../ui/canvas";
import type { Picture } from "../../../ui/picture";

/** Functions that create the picture of a view, keyed by the view's name. */
export const savablePictures = new Map<string, () => Picture | undefined>();

/** Register a view's picture while its component is shown. */
export function useSavable(name: string, picture: () => Picture | undefined): void {
  const latestPicture = useRef(picture);
  latestPicture.current = picture;
  useEffect(() => {
    const now = () => latestPicture.current();
    savablePictures.set(name, now);
    return () => {
      if (savablePictures.get(name) === now) savablePictures.delete(name);
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
  useSavable(name, () => {
    if (!canvas.current) return undefined;
    const { clientWidth: width, clientHeight: height } = canvas.current;
    return { title, lines: [words], width, height, draw };
  });
  return useCanvas((context, width, height) => {
    canvas.current = context.canvas;
    draw(context, width, height);
  });
}
