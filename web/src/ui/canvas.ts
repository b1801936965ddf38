/** Canvases that are as sharp as the screen and drawn once a frame at most. */

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

/** Sizes a canvas to its place on the page; units stay CSS pixels. */
export function fit(canvas: HTMLCanvasElement): [CanvasRenderingContext2D, number, number] | undefined {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio || 1;
  const context = canvas.getContext("2d");
  if (!context || !width || !height) return undefined;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

/**
 * The ref of a canvas that is drawn when it is sized, when signals that `draw` reads change, and when the component
 * renders anew.
 */
export function useCanvas(draw: Draw): (element: HTMLCanvasElement | null) => void {
  const [element, setElement] = useState<HTMLCanvasElement | null>(null);
  const latest = useRef(draw);
  latest.current = draw;
  const again = useRef(() => {});
  useEffect(() => {
    if (!element) return undefined;
    let frame = 0;
    const paint = () => {
      const fitted = fit(element);
      if (fitted) latest.current(...fitted);
    };
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
    };
    again.current = soon;
    const stop = effect(paint);
    const watcher = new ResizeObserver(soon);
    watcher.observe(element);
    return () => {
      again.current = () => {};
      stop();
      watcher.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [element]);
  useEffect(() => again.current());
  return setElement;
}
