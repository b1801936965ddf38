/** The visible part of a drawing: position and scale, which users can move and zoom. Pure functions. */

import { BOX, type Layout } from "./layout";

export interface View {
  /** Point of the drawing in the upper left corner. */
  x: number;
  y: number;
  /** Screen pixels per pixel of the drawing. */
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

/** Margin around a fitted drawing in screen pixels. */
const MARGIN = 16;
export const MAX_SCALE = 2;
/** Minimum scale at which names are readable; larger graphs are first shown completely. */
export const READABLE_SCALE = 0.7;
const MAX_READABLE_BOXES = 80;
const MIN_SCALE = 0.005;

function clampScale(scale: number): number {
  return Math.max(MIN_SCALE, Math.min(MAX_SCALE, scale));
}

/** Return a view that centers the whole drawing in the window, at a scale of up to 1. */
export function fitView(drawing: Size, window: Size): View {
  const scaleOf = (each: "width" | "height") => (window[each] - 2 * MARGIN) / Math.max(1, drawing[each]);
  const scale = clampScale(Math.min(1, scaleOf("width"), scaleOf("height")));
  return {
    x: (drawing.width - window.width / scale) / 2,
    y: (drawing.height - window.height / scale) / 2,
    scale,
  };
}

/** Return a view scaled by a factor around a point of the window. */
export function zoomView(view: View, factor: number, x: number, y: number): View {
  const scale = clampScale(view.scale * factor);
  return { x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale, scale };
}

/** Return a view moved by screen pixels, such that the drawing stays in the window. */
export function panView(view: View, dx: number, dy: number, drawing: Size, window: Size): View {
  const clamp = (at: number, windowLength: number, whole: number) =>
    Math.max(-windowLength + MARGIN / view.scale, Math.min(whole - MARGIN / view.scale, at));
  return {
    ...view,
    x: clamp(view.x - dx / view.scale, window.width / view.scale, drawing.width),
    y: clamp(view.y - dy / view.scale, window.height / view.scale, drawing.height),
  };
}

/** Return the view with the smallest move that makes a box fully visible. */
export function revealBox(view: View, layout: Layout, box: number, window: Size): View {
  const margin = MARGIN / view.scale;
  const reveal = (at: number, start: number, length: number, windowLength: number) => {
    if (start - margin < at || length + 2 * margin > windowLength) return start - margin;
    return start + length + margin > at + windowLength ? start + length + margin - windowLength : at;
  };
  return {
    ...view,
    x: reveal(view.x, layout.x[box] as number, BOX.width, window.width / view.scale),
    y: reveal(view.y, layout.y[box] as number, BOX.height, window.height / view.scale),
  };
}

/** Return the box at a point of the window. */
export function boxAt({ x, y }: Layout, view: View, left: number, top: number): number | undefined {
  const [atX, atY] = [view.x + left / view.scale, view.y + top / view.scale];
  for (let box = 0; box < x.length; box += 1) {
    const [dx, dy] = [atX - (x[box] as number), atY - (y[box] as number)];
    if (dx >= 0 && dx <= BOX.width && dy >= 0 && dy <= BOX.height) return box;
  }
  return undefined;
}

/** Return the box that an arrow key selects: the nearest one along an edge, or the next one in the layer. */
export function findNextBox(
  layout: Layout,
  neighbors: { parents: readonly number[]; children: readonly number[] },
  box: number,
  key: string,
): number | undefined {
  const y = (each: number) => Math.abs((layout.y[each] as number) - (layout.y[box] as number));
  const nearest = (list: readonly number[]) => [...list].sort((left, right) => y(left) - y(right))[0];
  const row = layout.rows.find((each) => each.includes(box)) ?? [];
  switch (key) {
    case "ArrowLeft":
      return nearest(neighbors.parents);
    case "ArrowRight":
      return nearest(neighbors.children);
    case "ArrowUp":
      return row[row.indexOf(box) - 1];
    case "ArrowDown":
      return row[row.indexOf(box) + 1];
    case "Home":
      return layout.rows[0]?.[0];
    case "End":
      return layout.rows.at(-1)?.at(-1);
    default:
      return undefined;
  }
}

// -- the map ----------------------------------------------------------------------------------------------------------

/** Maximum size of the overview map in pixels. */
const MAX_MAP_SIZE = { width: 160, height: 96 };
const MAP_MARGIN = 8;

export interface MapRect extends Size {
  left: number;
  top: number;
  /** Pixels of the map per pixel of the drawing. */
  scale: number;
}

/** Return the position of the map in the window, or undefined if the whole drawing is visible. */
export function mapRect(drawing: Size, { x, y, scale: viewScale }: View, window: Size): MapRect | undefined {
  const isFullyVisible =
    x <= 0 &&
    y <= 0 &&
    x + window.width / viewScale >= drawing.width &&
    y + window.height / viewScale >= drawing.height;
  if (isFullyVisible || window.width < 2 * MAX_MAP_SIZE.width) return undefined;
  const scale = Math.min(
    MAX_MAP_SIZE.width / Math.max(1, drawing.width),
    MAX_MAP_SIZE.height / Math.max(1, drawing.height),
  );
  const [width, height] = [Math.max(16, drawing.width * scale), Math.max(16, drawing.height * scale)];
  return { left: window.width - width - MAP_MARGIN, top: window.height - height - MAP_MARGIN, width, height, scale };
}

/** Return the view centered at a point of the map, or undefined outside the map. */
export function viewAtMapPoint(view: View, map: MapRect, left: number, top: number, window: Size): View | undefined {
  const [x, y] = [left - map.left, top - map.top];
  if (x < 0 || y < 0 || x > map.width || y > map.height) return undefined;
  const { scale } = view;
  return { x: x / map.scale - window.width / scale / 2, y: y / map.scale - window.height / scale / 2, scale };
}

/** Return the first view: the whole drawing if names are readable, otherwise a part around a box. */
export function initialView(layout: Layout, box: number | undefined, window: Size): View {
  const fullView = fitView(layout, window);
  if (fullView.scale >= READABLE_SCALE || layout.x.length > MAX_READABLE_BOXES) return fullView;
  const view = { ...fullView, scale: READABLE_SCALE };
  const at = box ?? 0;
  const middle = (start: number, length: number, windowLength: number) =>
    start + length / 2 - windowLength / READABLE_SCALE / 2;
  return panView(
    {
      ...view,
      x: Math.max(-MARGIN / READABLE_SCALE, middle(layout.x[at] ?? 0, BOX.width, window.width)),
      y:
        layout.height * READABLE_SCALE < window.height
          ? (layout.height - window.height / READABLE_SCALE) / 2
          : middle(layout.y[at] ?? 0, BOX.height, window.height),
    },
    0,
    0,
    layout,
    window,
  );
}
