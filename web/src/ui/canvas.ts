/** Canvases with the screen's resolution, redrawn at most once per frame. */

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

/** Fit a canvas to its size on the page; units are CSS pixels. */
export function fitCanvas(canvas: HTMLCanvasElement): [CanvasRenderingContext2D, number, number] | undefined {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = devicePixelRatio || 1;
  const context = canvas.getContext("2d");
  if (!context || !width || !height) return undefined;
  const [pixelWidth, pixelHeight] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== pixelWidth || canvas.height !== pixelHeight)
    Object.assign(canvas, { width: pixelWidth, height: pixelHeight });
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
  const redraws = useRef(() => {});
  useEffect(() => {
    if (!element) return undefined;
    let frame = 0;
    const paint = () => {
      const size = fitCanvas(element);
      if (size) latest.current(...size);
    };
    const scheduleDraw = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
    };
    redraws.current = scheduleDraw;
    const stop = effect(paint);
    const watcher = new ResizeObserver(scheduleDraw);
    watcher.observe(element);
    return () => {
      redraws.current = () => {};
      stop();
      watcher.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [element]);
  useEffect(() => redraws.current());
  return setElement;
}
