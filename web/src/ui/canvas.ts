/** Canvases with the screen's resolution, redrawn at most once per frame. */

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

/** Fit a canvas to its size on the page; units are CSS pixels. */
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
 * Return the ref of a canvas that is redrawn when its size changes, when signals read by `draw` change, and when the
 * component renders.
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
