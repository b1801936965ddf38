/** The part of a drawing that is seen: its place and scale, moved and zoomed. Pure. */

import { BOX, type Layout } from "./layout";

export interface View {
  /** The drawing's point in the upper left corner. */
  x: number;
  y: number;
  /** Pixels of the screen for one of the drawing. */
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

/** Free space around what is fitted, in pixels of the screen. */
const MARGIN = 16;
export const MOST_SCALE = 2;
const LEAST_SCALE = 0.005;

function bounded(scale: number): number {
  return Math.max(LEAST_SCALE, Math.min(MOST_SCALE, scale));
}

/** All of a drawing in the middle of a window, not larger than it is. */
export function fitted(drawing: Size, window: Size): View {
  const room = (each: "width" | "height") => (window[each] - 2 * MARGIN) / Math.max(1, drawing[each]);
  const scale = bounded(Math.min(1, room("width"), room("height")));
  return {
    x: (drawing.width - window.width / scale) / 2,
    y: (drawing.height - window.height / scale) / 2,
    scale,
  };
}

/** Scaled by a factor, with one point of the window where it is. */
export function zoomed(view: View, by: number, x: number, y: number): View {
  const scale = bounded(view.scale * by);
  return { x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale, scale };
}

/** Moved by pixels of the screen; the drawing never leaves the window. */
export function panned(view: View, dx: number, dy: number, drawing: Size, window: Size): View {
  const kept = (at: number, room: number, whole: number) =>
    Math.max(-room + MARGIN / view.scale, Math.min(whole - MARGIN / view.scale, at));
  return {
    ...view,
    x: kept(view.x - dx / view.scale, window.width / view.scale, drawing.width),
    y: kept(view.y - dy / view.scale, window.height / view.scale, drawing.height),
  };
}

/** Moved as little as brings a box whole into the window. */
export function showing(view: View, layout: Layout, box: number, window: Size): View {
  const margin = MARGIN / view.scale;
  const near = (at: number, start: number, length: number, room: number) => {
    if (start - margin < at || length + 2 * margin > room) return start - margin;
    return start + length + margin > at + room ? start + length + margin - room : at;
  };
  return {
    ...view,
    x: near(view.x, layout.x[box] as number, BOX.width, window.width / view.scale),
    y: near(view.y, layout.y[box] as number, BOX.height, window.height / view.scale),
  };
}

/** The box at a point of the window. */
export function boxAt({ x, y }: Layout, view: View, left: number, top: number): number | undefined {
  const [atX, atY] = [view.x + left / view.scale, view.y + top / view.scale];
  for (let box = 0; box < x.length; box += 1) {
    const [dx, dy] = [atX - (x[box] as number), atY - (y[box] as number)];
    if (dx >= 0 && dx <= BOX.width && dy >= 0 && dy <= BOX.height) return box;
  }
  return undefined;
}

/** The box that an arrow leads to: along an edge to the nearest, or to the next of its layer. */
export function arrived(
  layout: Layout,
  near: { parents: readonly number[]; children: readonly number[] },
  box: number,
  key: string,
): number | undefined {
  const y = (each: number) => Math.abs((layout.y[each] as number) - (layout.y[box] as number));
  const nearest = (list: readonly number[]) => [...list].sort((left, right) => y(left) - y(right))[0];
  const row = layout.rows.find((each) => each.includes(box)) ?? [];
  switch (key) {
    case "ArrowLeft":
      return nearest(near.parents);
    case "ArrowRight":
      return nearest(near.children);
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
