import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const CSS = readFileSync(new URL("../src/ui/tokens.css", import.meta.url), "utf8");

/** Return the colors of thread depths in the light or dark theme. */
function depths(dark: boolean): number[][] {
  const found = [...CSS.matchAll(/--depth-\d: light-dark\(#(\w{6}), #(\w{6})\)/g)];
  return found.map((each) => (each[dark ? 2 : 1] as string).match(/../g)!.map((part) => Number.parseInt(part, 16)));
}

function luminance(rgb: readonly number[]): number {
  const [red = 0, green = 0, blue = 0] = rgb.map((part) =>
    part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(left: readonly number[], right: readonly number[]): number {
  const [low = 0, high = 0] = [luminance(left), luminance(right)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

test.each([
  [false, [250, 250, 251]],
  [true, [14, 17, 22]],
])("each depth is seen on the ground, and the root is not its children (dark: %s)", (dark, ground) => {
  const colors = depths(dark);
  expect(colors.length).toBe(6);
  for (const color of colors) expect(contrast(color, ground)).toBeGreaterThan(3);
  for (const [index, color] of colors.slice(1).entries()) {
    const before = colors[index] as number[];
    expect(Math.hypot(...color.map((part, at) => part - (before[at] as number)))).toBeGreaterThan(60);
  }
});
