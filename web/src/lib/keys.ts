/** Keyboard shortcuts: `keys({ "g o": {run, text}, Space: {…} })`. The keys of a sequence are separated by spaces. */

import { signal } from "@preact/signals";

export interface Key {
  run: (event: KeyboardEvent) => void;
  /** Description for the list of shortcuts under `?`. */
  text: string;
}

export type Keys = Record<string, Key>;

/** All bound shortcuts, newest set last, as listed under `?`. */
export const bound = signal<readonly Keys[]>([]);

/** Maximum time in milliseconds between the keys of a sequence. */
const SEQUENCE_MS = 1200;

const ALIASES: Record<string, string> = {
  " ": "Space",
  ArrowLeft: "Left",
  ArrowRight: "Right",
  ArrowUp: "Up",
  ArrowDown: "Down",
};

/** Return the name of a key event, such as "Shift+Left", "j" or "?". */
export function nameOf(event: Pick<KeyboardEvent, "key" | "shiftKey" | "ctrlKey" | "metaKey" | "altKey">): string {
  const key = ALIASES[event.key] ?? event.key;
  const marks = [event.ctrlKey || event.metaKey ? "Ctrl" : "", event.altKey ? "Alt" : ""];
  // Printable characters such as "?" and "A" already include Shift.
  if (event.shiftKey && key.length > 1) marks.push("Shift");
  return [...marks.filter(Boolean), key].join("+");
}

function types(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"))
  );
}

/** Buttons, links and checkboxes handle Enter and Space themselves. */
function acts(target: EventTarget | null, name: string): boolean {
  return (
    (name === "Enter" || name === "Space") &&
    target instanceof HTMLElement &&
    target.matches("button, a, summary, input, [role=tab]")
  );
}

let pending = "";
let pendingSince = 0;

function find(name: string): Key | undefined {
  for (const set of bound.peek().toReversed()) {
    const key = set[name] ?? (name.length === 1 ? (set[name.toLowerCase()] ?? set[name.toUpperCase()]) : undefined);
    if (key) return key;
  }
  return undefined;
}

function begins(name: string): boolean {
  return bound.peek().some((set) => Object.keys(set).some((each) => each.startsWith(`${name} `)));
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || types(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const name = nameOf(event);
  const sequence = pending && event.timeStamp - pendingSince < SEQUENCE_MS ? `${pending} ${name}` : "";
  pending = "";
  const key = (sequence ? find(sequence) : undefined) ?? (acts(event.target, name) ? undefined : find(name));
  if (key) {
    event.preventDefault();
    key.run(event);
  } else if (begins(name)) {
    pending = name;
    pendingSince = event.timeStamp;
  }
}

/** Bind shortcuts until the returned function is called. Keys in input fields and in open dialogs are ignored. */
export function keys(set: Keys): () => void {
  if (!bound.peek().length) document.addEventListener("keydown", onKey);
  bound.value = [...bound.peek(), set];
  return () => {
    bound.value = bound.peek().filter((each) => each !== set);
    if (!bound.peek().length) document.removeEventListener("keydown", onKey);
  };
}
