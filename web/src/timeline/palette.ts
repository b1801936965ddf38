/** Colours of time on a core. Each has a second sign too: labels, hatching, the legend. */

import type { Mode } from "./lod";

export type Rgb = readonly [number, number, number];

export interface Palette {
  /** 256 colours from the least to the most of what the mode tells. */
  ramp: Uint8Array;
  steal: Rgb;
  blocked: Rgb;
  ground: Rgb;
}

/** Least to most; on white all are dark enough, on black light enough. */
const RAMPS: Record<Mode, { light: Rgb[]; dark: Rgb[] }> = {
  depth: {
    light: [
      [68, 1, 84],
      [62, 74, 137],
      [38, 120, 142],
      [44, 158, 122],
    ],
    dark: [
      [86, 134, 190],
      [40, 160, 155],
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

export function colour([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

function ramp(stops: readonly Rgb[]): Uint8Array {
  const table = new Uint8Array(256 * 3);
  for (let place = 0; place < 256; place += 1) {
    const at = (place / 255) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    const [from, to] = [stops[low] as Rgb, stops[low + 1] as Rgb];
    for (let part = 0; part < 3; part += 1)
      table[3 * place + part] = Math.round(
        (from[part] as number) + ((to[part] as number) - (from[part] as number)) * (at - low),
      );
  }
  return table;
}

export function palette(mode: Mode, dark: boolean): Palette {
  return dark
    ? { ramp: ramp(RAMPS[mode].dark), steal: [224, 160, 196], blocked: [128, 140, 152], ground: [33, 37, 43] }
    : { ramp: ramp(RAMPS[mode].light), steal: [160, 74, 124], blocked: [112, 126, 140], ground: [255, 255, 255] };
}

/** The colour of a level 0..1. */
export function shadeAt({ ramp: colours }: Palette, level: number): Rgb {
  const place = 3 * Math.round(255 * Math.max(0, Math.min(1, level)));
  return [colours[place] as number, colours[place + 1] as number, colours[place + 2] as number];
}
