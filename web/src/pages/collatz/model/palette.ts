/** Palettes of the coral: a color for each fraction of the way from root to tip. Pure functions. */

import { cssColor, viridisColor } from "../../../density/color";

export const PALETTES = ["viridis", "coral", "kelp", "ink"] as const;
export type Palette = (typeof PALETTES)[number];

type Stop = readonly [number, number, number];

/** Color stops from root to tip, on light and dark backgrounds. */
const STOPS: Record<Exclude<Palette, "viridis">, readonly [light: readonly Stop[], dark: readonly Stop[]]> = {
  coral: [
    [
      [92, 22, 54],
      [196, 52, 66],
      [238, 130, 92],
    ],
    [
      [255, 226, 190],
      [250, 128, 104],
      [214, 62, 104],
    ],
  ],
  kelp: [
    [
      [20, 48, 44],
      [24, 112, 96],
      [120, 160, 60],
    ],
    [
      [224, 240, 170],
      [84, 190, 150],
      [40, 120, 170],
    ],
  ],
  ink: [
    [
      [20, 24, 30],
      [70, 78, 90],
      [130, 138, 150],
    ],
    [
      [250, 250, 252],
      [186, 192, 202],
      [120, 128, 142],
    ],
  ],
};

function interpolateStops(stops: readonly Stop[], share: number): Stop {
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(at));
  const [from, to] = [stops[index] as Stop, stops[index + 1] as Stop];
  const mixed = from.map((channel, each) => Math.round(channel + (at - index) * ((to[each] as number) - channel)));
  return mixed as unknown as Stop;
}

/** Return the color function of a palette on a light or dark background. */
export function paletteColors(palette: Palette, dark: boolean): (share: number) => string {
  if (palette === "viridis") return (share) => cssColor(viridisColor(share, dark));
  const stops = STOPS[palette][dark ? 1 : 0];
  return (share) => cssColor(interpolateStops(stops, share));
}
