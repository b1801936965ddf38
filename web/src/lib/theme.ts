/** Light or dark theme, chosen by the system or the user, and design tokens for canvases. */

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
/** True while the page is dark. Canvases read this signal so that they are redrawn. */
export const dark = computed(() => (preference.value === "auto" ? system.value : preference.value === "dark"));

function show(wanted: Theme): void {
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
}

/** Store the theme of this browser. */
export function choose(wanted: Theme): void {
  show(wanted); // first, because listeners of the signal read colors from the page
  localStorage.setItem("theme", wanted);
  preference.value = wanted;
}

show(preference.peek());

const colorCache = new Map<string, string>();

/**
 * Return a design token as a canvas color, such as token("accent"). Effects that call it run again when the theme
 * changes.
 */
export function token(name: string): string {
  const key = `${dark.value} ${name}`;
  const color = colorCache.get(key) ?? resolve(name);
  colorCache.set(key, color);
  return color;
}

function resolve(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

/** True for touch screens, which have no wheel and no Shift key. */
export const touch = matchMedia("(hover: none)").matches;
/** True if the user prefers reduced motion. */
export const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
