/** Light or dark: as the system says, or as chosen here; and the tokens as canvases need them. */

import { computed, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

function stored(): Theme {
  const setting = localStorage.getItem("theme");
  return setting === "light" || setting === "dark" ? setting : "auto";
}

const preference = signal<Theme>(stored());
const media = matchMedia("(prefers-color-scheme: dark)");
const system = signal(media.matches);
media.addEventListener("change", () => (system.value = media.matches));

export const theme = computed(() => preference.value);
/** True while the page is dark: canvases that draw with tokens read it, and are drawn again. */
export const dark = computed(() => (preference.value === "auto" ? system.value : preference.value === "dark"));

function show(wanted: Theme): void {
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
}

/** Changes the theme of this browser, for good. */
export function choose(wanted: Theme): void {
  show(wanted); // first: whoever redraws on the signal reads colours from the page
  localStorage.setItem("theme", wanted);
  preference.value = wanted;
}

show(preference.peek());

const colours = new Map<string, string>();

/** A token as a colour that a canvas takes: token("accent"). Read in an effect, it draws anew with the theme. */
export function token(name: string): string {
  const key = `${dark.value} ${name}`;
  const colour = colours.get(key) ?? resolve(name);
  colours.set(key, colour);
  return colour;
}

function resolve(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** True where fingers point: there is no wheel and no Shift key. */
export const touch = matchMedia("(hover: none)").matches;
/** True when the reader wants no motion. */
export const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
