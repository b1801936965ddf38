/** Pictures that a view can save while it is on the page. */

import { useEffect, useRef } from "preact/hooks";
import { useCanvas, type Draw } from "../../../ui/canvas";

/** Functions that draw a view for a file, by the view's name. */
export const pictures = new Map<string, () => HTMLCanvasElement | undefined>();

/** Registers a view's picture while the component is there. */
export function useSaved(name: string, picture: () => HTMLCanvasElement | undefined): void {
  useEffect(() => {
    pictures.set(name, picture);
    return () => {
      if (pictures.get(name) === picture) pictures.delete(name);
    };
  }, []);
}

/** A canvas as of useCanvas that can be saved under a name. */
export function usePicture(name: string, draw: Draw): (element: HTMLCanvasElement | null) => void {
  const canvas = useRef<HTMLCanvasElement | undefined>(undefined);
  useSaved(name, () => canvas.current);
  return useCanvas((context, width, height) => {
    canvas.current = context.canvas;
    draw(context, width, height);
  });
}

/** A copy on the page's ground instead of on nothing. */
export function grounded(picture: HTMLCanvasElement): HTMLCanvasElement {
  const copy = Object.assign(document.createElement("canvas"), { width: picture.width, height: picture.height });
  const context = copy.getContext("2d");
  if (!context) return picture;
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(picture, 0, 0);
  return copy;
}
