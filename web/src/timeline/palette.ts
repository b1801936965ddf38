/** Colors of time on a core. Labels, hatching and the legend provide the same information without color. */

import type { Mode } from "./sums";

export type Rgb = readonly [number, number, number];

export interface Palette {
  /** 256 colors from the minimum to the maximum of the mode's value. */
  ramp: Uint8Array;
  steal: Rgb;
  blocked: Rgb;
  background: Rgb;
}

/** Color ramps with sufficient contrast on white and on black. */
const RAMPS: Record<Mode, { light: Rgb[]; dark: Rgb[] }> = {
  /** From depth 1 to the greatest depth; roots have a separate color. */
  depth: {
    light: [
      [43, 108, 196],
      [0, 128, 128],
      [70, 130, 45],
      [160, 118, 0],
    ],
    dark: [
      [78, 142, 214],
      [40, 165, 155],
      [120, 205, 100],
      [253, 231, 37],
    ],
  },
  stolen: {
    light: [
      [0, 114, 178],
      [179, 71, 0],
    ],
    dark: [
      [86, 180, 233],
      [230, 159, 0],
    ],
  },
  wait: {
    light: [
      [112, 145, 175],
      [130, 80, 140],
      [140, 15, 40],
    ],
    dark: [
      [88, 118, 148],
      [200, 120, 150],
      [255, 190, 120],
    ],
  },
};
const ROOTS: { light: Rgb; dark: Rgb } = { light: [61, 20, 96], dark: [201, 178, 255] };

export function cssColor([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

function mixColors(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (channel: 0 | 1 | 2) => Math.round(from[channel] + (to[channel] - from[channel]) * share);
  return [part(0), part(1), part(2)];
}

/** Return the color at 0..1 between the first and the last stop. */
function interpolateStops(stops: readonly Rgb[], at: number): Rgb {
  const position = Math.max(0, Math.min(1, at)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(position));
  return mixColors(stops[low] as Rgb, stops[low + 1] as Rgb, position - low);
}

/** Return the color of a depth, which can be a mean. */
function depthColor(stops: readonly Rgb[], root: Rgb, depth: number, deepest: number): Rgb {
  if (depth <= 1) return mixColors(root, stops[0] as Rgb, depth);
  return interpolateStops(stops, (depth - 1) / Math.max(1, deepest - 1));
}

function createRamp(colorAt: (level: number) => Rgb): Uint8Array {
  const ramp = new Uint8Array(256 * 3);
  for (let index = 0; index < 256; index += 1) ramp.set(colorAt(index / 255), 3 * index);
  return ramp;
}

/** Return the colors of a mode; `deepest` is the depth at level 1. */
export function createPalette(mode: Mode, dark: boolean, deepest = 1): Palette {
  const theme = dark ? "dark" : "light";
  const stops = RAMPS[mode][theme];
  const max = Math.max(1, deepest);
  const ramp = createRamp((level) =>
    mode === "depth" ? depthColor(stops, ROOTS[theme], level * max, max) : interpolateStops(stops, level),
  );
  return dark
    ? { ramp, steal: [224, 160, 196], blocked: [128, 140, 152], background: [33, 37, 43] }
    : { ramp, steal: [160, 74, 124], blocked: [112, 126, 140], background: [255, 255, 255] };
}

/** Return the color of a level 0..1. */
export function rampColor({ ramp: colors }: Palette, level: number): Rgb {
  const offset = 3 * Math.round(255 * Math.max(0, Math.min(1, level)));
  return [colors[offset] as number, colors[offset + 1] as number, colors[offset + 2] as number];
}
