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
function escaped(plain: string): string {
  return encodeURIComponent(plain).replaceAll("%20", "+").replaceAll("%3A", ":").replaceAll("%2F", "/");
}

function unescaped(given: string): string {
  return decodeURIComponent(given.replaceAll("+", "%20"));
}

function text(value: Value): string {
  return Array.isArray(value) ? value.map((each) => escaped(each)).join(",") : escaped(String(value));
}

function parsed(given: string, example: Value): Value | undefined {
  if (Array.isArray(example)) return given ? given.split(",").map(unescaped) : [];
  const plain = unescaped(given);
  if (typeof example === "boolean") return plain === "1" || plain === "true";
  if (typeof example !== "number") return plain;
  const number = Number(plain);
  return plain !== "" && Number.isFinite(number) ? number : undefined;
}

/** Encode the values that differ from the defaults, in the order of their keys. */
export function encode(values: Record<string, Value>, defaults: Defaults): string {
  const parts: string[] = [];
  for (const [name, usual] of Object.entries(defaults)) {
    const value = values[name];
    if (value === undefined || text(value) === text(usual)) continue;
    parts.push(`${name}=${typeof value === "boolean" ? Number(value) : text(value)}`);
  }
  return parts.join("&");
}

/** Decode a hash. Missing or invalid values get the default, and unknown keys are ignored. */
export function decode(hash: string, defaults: Defaults): Record<string, Value> {
  const given = new Map<string, string>();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, ...rest] = part.split("=");
    if (name) given.set(name, rest.join("="));
  }
  return Object.fromEntries(Object.entries(defaults).map(([name, usual]) => [name, read(given.get(name), usual)]));
}

function read(given: string | undefined, usual: Value): Value {
  if (given === undefined) return usual;
  try {
    return parsed(given, usual) ?? usual;
  } catch {
    return usual; // a broken % escape
  }
}

/** Create signals that are stored in the URL's hash. Call once per page. */
export function hashState<D extends Defaults>(defaults: D): HashState<D> {
  const signals: Record<string, Signal<Value>> = {};
  for (const [name, value] of Object.entries(decode(location.hash, defaults))) signals[name] = signal(value);
  const current = () => Object.fromEntries(Object.entries(signals).map(([name, each]) => [name, each.value]));
  const link = () => {
    const hash = encode(current(), defaults);
    return location.pathname + location.search + (hash ? `#${hash}` : "");
  };
  let timer = 0;
  const write = (how: "pushState" | "replaceState") => {
    clearTimeout(timer);
    timer = 0;
    if (location.pathname + location.search + location.hash !== link()) history[how](null, "", link());
  };
  effect(() => {
    link();
    timer ||= setTimeout(() => write("replaceState"), THROTTLE_MS) as unknown as number;
  });
  const adopt = () => {
    clearTimeout(timer);
    timer = 0;
    for (const [name, value] of Object.entries(decode(location.hash, defaults))) {
      const known = signals[name] as Signal<Value>;
      if (text(known.peek()) !== text(value)) known.value = value;
    }
  };
  addEventListener("popstate", adopt);
  addEventListener("hashchange", adopt);
  return Object.assign(signals, { commit: () => write("pushState"), link }) as unknown as HashState<D>;
}
