/** Trajectories drawn backwards from 1, where each step turns by one of two angles. Pure functions. */

export interface Segment {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
  /** Number of steps from 1. */
  depth: number;
}

export interface CoralShape {
  /** Draws the trajectories of 2 … numbers, up to a million so that doubles are exact. */
  numbers: number;
  /** Turn to the left in degrees for even numbers. */
  even: number;
  /** Turn to the right in degrees for odd numbers. */
  odd: number;
}

interface Joint {
  x: number;
  y: number;
  heading: number;
  depth: number;
}

/** Return each branch once, starting near 1. The first segment points up. */
export function createCoral({ numbers, even, odd }: CoralShape): Segment[] {
  const joints = new Map<number, Joint>([[1, { x: 0, y: 0, heading: Math.PI / 2, depth: 0 }]]);
  const segments: Segment[] = [];
  const turns = [(even * Math.PI) / 180, (-odd * Math.PI) / 180] as const;
  for (let n = 2; n <= numbers; n += 1) {
    const path: number[] = [];
    let at = n;
    for (; !joints.has(at); at = at % 2 ? 3 * at + 1 : at / 2) path.push(at);
    for (const value of path.reverse()) {
      const from = joints.get(at) as Joint;
      const heading = from.heading + turns[value % 2 ? 1 : 0];
      const length = 1 / Math.log2(2 + from.depth / 8);
      const to = {
        x: from.x + Math.cos(heading) * length,
        y: from.y + Math.sin(heading) * length,
        heading,
        depth: from.depth + 1,
      };
      joints.set(value, to);
      segments.push({ x0: from.x, y0: from.y, x1: to.x, y1: to.y, depth: to.depth });
      at = value;
    }
  }
  return segments.sort((left, right) => left.depth - right.depth);
}

/** Rotate the coral so that most of it is above its root. */
export function rotateUpright(segments: readonly Segment[]): Segment[] {
  let [x, y] = [0, 0];
  for (const each of segments) [x, y] = [x + each.x1, y + each.y1];
  const turn = Math.PI / 2 - Math.atan2(y, x);
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  return segments.map(({ x0, y0, x1, y1, depth }) => ({
    x0: x0 * cos - y0 * sin,
    y0: x0 * sin + y0 * cos,
    x1: x1 * cos - y1 * sin,
    y1: x1 * sin + y1 * cos,
    depth,
  }));
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export function boundingBox(segments: readonly Segment[]): Box {
  let [left, right, low, high] = [0, 0, 0, 1];
  for (const { x1, y1 } of segments) {
    [left, right] = [Math.min(left, x1), Math.max(right, x1)];
    [low, high] = [Math.min(low, y1), Math.max(high, y1)];
  }
  return { left, top: high, width: right - left || 1, height: high - low || 1 };
}

/** Return the coral as an SVG file. */
export function formatSvg(segments: readonly Segment[], color: (share: number) => string, note: string): string {
  const { left, top, width, height } = boundingBox(segments);
  const deepest = segments.at(-1)?.depth || 1;
  const groups = new Map<number, string[]>();
  for (const each of segments) {
    const path =
      `M${(each.x0 - left).toFixed(3)} ${(top - each.y0).toFixed(3)}L${(each.x1 - left).toFixed(3)} ` +
      `${(top - each.y1).toFixed(3)}`;
    const group = groups.get(each.depth);
    if (group) group.push(path);
    else groups.set(each.depth, [path]);
  }
  const paths = [...groups].map(([depth, parts]) => `<path stroke="${color(depth / deepest)}" d="${parts.join("")}"/>`);
  const box = `${-0.02 * width} ${-0.02 * height} ${1.04 * width} ${1.04 * height}`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${box}"><title>${note}</title>` +
    `<g fill="none" stroke-width="${Math.max(width, height) / 900}" ` +
    `stroke-linecap="round">${paths.join("")}</g></svg>\n`
  );
}
