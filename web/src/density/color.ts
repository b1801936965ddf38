/** Color scales for data, shared by shaders, canvases and legends. Pure functions. */

/**
 * Viridis color map as a polynomial of degree 6 per channel, fitted by least squares; the maximum error is 4 of 255.
 */
export const VIRIDIS: readonly (readonly [number, number, number])[] = [
  [0.2745, 0.0058, 0.3327],
  [0.1077, 1.3965, 1.3868],
  [-0.3272, 0.2148, 0.092],
  [-4.5999, -5.7582, -19.2918],
  [6.2037, 14.154, 56.6563],
  [4.7518, -13.7494, -65.321],
  [-5.4321, 4.6416, 26.2721],
];

/** Okabe-Ito palette, for up to eight residues. */
export const CLASS_COLORS: readonly (readonly [number, number, number])[] = [
  [0, 114, 178],
  [213, 94, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [230, 159, 0],
  [240, 228, 66],
  [120, 120, 120],
];
/** Color of a cell with several residues. */
export const MIXED_COLOR = [150, 150, 150] as const;

/** Return the part of the scale to use: its ends have too little contrast on light or dark pages. */
export function scaleRange(dark: boolean): readonly [number, number] {
  return dark ? [0.22, 1] : [0, 0.86];
}

/** Return red, green and blue (0 to 255) for a position on the scale. */
export function viridisColor(share: number, dark: boolean): [number, number, number] {
  const [low, high] = scaleRange(dark);
  const at = low + (high - low) * Math.min(1, Math.max(0, share));
  const sum = [0, 0, 0];
  for (const factors of VIRIDIS.toReversed())
    for (let channel = 0; channel < 3; channel += 1) {
      sum[channel] = (sum[channel] as number) * at + (factors[channel] as number);
    }
  return sum.map((value) => Math.round(255 * Math.min(1, Math.max(0, value)))) as [number, number, number];
}

export function cssColor([red, green, blue]: readonly [number, number, number]): string {
  return `rgb(${red},${green},${blue})`;
}

export interface ColorScale {
  /** count: logarithm of the count, from `min` to `max`; value: linear between them; class: residues. */
  mode: "count" | "value" | "class";
  min: number;
  max: number;
  isDark: boolean;
}

/** Return the position of a cell's value on the color scale. */
export function scalePosition(value: number, { mode, min, max }: ColorScale): number {
  if (mode === "count") {
    const low = Math.log1p(min);
    return (Math.log1p(value) - low) / (Math.log1p(Math.max(1, max)) - low);
  }
  return (value - min) / Math.max(1, max - min);
}

/** Return the color of a nonempty cell. */
export function cellColor(value: number, look: ColorScale): readonly [number, number, number] {
  if (look.mode !== "class") return viridisColor(scalePosition(value, look), look.isDark);
  return CLASS_COLORS[Math.round(value) - 1] ?? MIXED_COLOR;
}
