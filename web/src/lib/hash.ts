/** Page state in the URL's hash with readable keys, so that users can share a view. */

import { effect, signal, type Signal } from "@preact/signals";

export type Value = string | number | boolean | readonly string[];
export type Defaults = Record<string, Value>;
type Widened<T> = T extends number
  ? number
  : T extends boolean
    ? boolean
    : T extends readonly string[]
      ? readonly string[]
      : string;
export type HashState<D extends Defaults> = { [K in keyof D]: Signal<Widened<D[K]>> } & {
  /** Write the URL now, as a new entry in the browser's history. */
  commit(): void;
  /** Return the URL of the current state. */
  link(): string;
};

/** Minimum interval in milliseconds: Safari allows 100 URL replacements in 30 s. */
const THROTTLE_MS = 350;

/** Escape like encodeURIComponent, but keep characters that are safe after # and write spaces as +. */
function escapeValue(plain: string): string {
  return encodeURIComponent(plain).replaceAll("%20", "+").replaceAll("%3A", ":").replaceAll("%2F", "/");
}

function unescapeValue(escaped: string): string {
  return decodeURIComponent(escaped.replaceAll("+", "%20"));
}

function formatValue(value: Value): string {
  return Array.isArray(value) ? value.map((item) => escapeValue(item)).join(",") : escapeValue(String(value));
}

function parseValue(text: string, example: Value): Value | undefined {
  if (Array.isArray(example)) return text ? text.split(",").map(unescapeValue) : [];
  const plain = unescapeValue(text);
  if (typeof example === "boolean") return plain === "1" || plain === "true";
  if (typeof example !== "number") return plain;
  const number = Number(plain);
  return plain !== "" && Number.isFinite(number) ? number : undefined;
}

/** Encode the values that differ from the defaults, in the order of their keys. */
export function encodeHash(values: Record<string, Value>, defaults: Defaults): string {
  const parts: string[] = [];
  for (const [name, initial] of Object.entries(defaults)) {
    const value = values[name];
    if (value === undefined || formatValue(value) === formatValue(initial)) continue;
    parts.push(`${name}=${typeof value === "boolean" ? Number(value) : formatValue(value)}`);
  }
  return parts.join("&");
}

/** Decode a hash. Missing or invalid values get the default, and unknown keys are ignored. */
export function decodeHash(hash: string, defaults: Defaults): Record<string, Value> {
  const texts = new Map<string, string>();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, ...rest] = part.split("=");
    if (name) texts.set(name, rest.join("="));
  }
  return Object.fromEntries(
    Object.entries(defaults).map(([name, initial]) => [name, readValue(texts.get(name), initial)]),
  );
}

function readValue(text: string | undefined, initial: Value): Value {
  if (text === undefined) return initial;
  try {
    return parseValue(text, initial) ?? initial;
  } catch {
    return initial; // a broken % escape
  }
}

/** Create signals that are stored in the URL's hash. Call once per page. */
export function createHashState<D extends Defaults>(defaults: D): HashState<D> {
  const signals: Record<string, Signal<Value>> = {};
  for (const [name, value] of Object.entries(decodeHash(location.hash, defaults))) signals[name] = signal(value);
  const current = () => Object.fromEntries(Object.entries(signals).map(([name, state]) => [name, state.value]));
  const link = () => {
    const hash = encodeHash(current(), defaults);
    return location.pathname + location.search + (hash ? `#${hash}` : "");
  };
  let timer = 0;
  const write = (method: "pushState" | "replaceState") => {
    clearTimeout(timer);
    timer = 0;
    if (location.pathname + location.search + location.hash !== link()) history[method](null, "", link());
  };
  effect(() => {
    link();
    timer ||= setTimeout(() => write("replaceState"), THROTTLE_MS) as unknown as number;
  });
  const readUrl = () => {
    clearTimeout(timer);
    timer = 0;
    for (const [name, value] of Object.entries(decodeHash(location.hash, defaults))) {
      const state = signals[name] as Signal<Value>;
      if (formatValue(state.peek()) !== formatValue(value)) state.value = value;
    }
  };
  addEventListener("popstate", readUrl);
  addEventListener("hashchange", readUrl);
  return Object.assign(signals, { commit: () => write("pushState"), link }) as unknown as HashState<D>;
}
