/** Light or dark theme, chosen by the system or the user, and design tokens for canvases. */

import { computed, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

function readPreference(): Theme {
  const setting = localStorage.getItem("theme");
  return setting === "light" || setting === "dark" ? setting : "auto";
}

const preference = signal<Theme>(readPreference());
const media = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(media.matches);
media.addEventListener("change", () => (isSystemDark.value = media.matches));

export const theme = computed(() => preference.value);
/** True while the page is dark. Canvases read this signal so that they are redrawn. */
export const isDark = computed(() => (preference.value === "auto" ? isSystemDark.value : preference.value === "dark"));

function applyTheme(choice: Theme): void {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}

/** Store the theme of this browser. */
export function chooseTheme(choice: Theme): void {
  applyTheme(choice); // first, because listeners of the signal read colors from the page
  localStorage.setItem("theme", choice);
  preference.value = choice;
}

applyTheme(preference.peek());

const colorCache = new Map<string, string>();

/**
 * Return a design token as a canvas color, such as token("accent"). Effects that call it run again when the theme
 * changes.
 */
export function token(name: string): string {
  const key = `${isDark.value} ${name}`;
  const color = colorCache.get(key) ?? resolveToken(name);
  colorCache.set(key, color);
  return color;
}

function resolveToken(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

/** True for touch screens, which have no wheel and no Shift key. */
export const isTouchScreen = matchMedia("(hover: none)").matches;
/** True if the user prefers reduced motion. */
export const hasReducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
