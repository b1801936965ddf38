/**
 * Keyboard shortcuts: `bindShortcuts({ "g o": {run, text}, Space: {…} })`. The keys of a sequence are separated by
 * spaces.
 */

import { signal } from "@preact/signals";

export interface Shortcut {
  run: (event: KeyboardEvent) => void;
  /** Description for the list of shortcuts under `?`. */
  text: string;
}

export type Shortcuts = Record<string, Shortcut>;

/** All bound shortcuts, newest set last, as listed under `?`. */
export const boundShortcuts = signal<readonly Shortcuts[]>([]);

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
export function keyName(event: Pick<KeyboardEvent, "key" | "shiftKey" | "ctrlKey" | "metaKey" | "altKey">): string {
  const key = ALIASES[event.key] ?? event.key;
  const modifiers = [event.ctrlKey || event.metaKey ? "Ctrl" : "", event.altKey ? "Alt" : ""];
  // Printable characters such as "?" and "A" already include Shift.
  if (event.shiftKey && key.length > 1) modifiers.push("Shift");
  return [...modifiers.filter(Boolean), key].join("+");
}

function isTextInput(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"))
  );
}

/** Buttons, links and checkboxes handle Enter and Space themselves. */
function isButtonKey(target: EventTarget | null, name: string): boolean {
  return (
    (name === "Enter" || name === "Space") &&
    target instanceof HTMLElement &&
    target.matches("button, a, summary, input, [role=tab]")
  );
}

let sequenceStart = "";
let sequenceStartedAt = 0;

function findShortcut(name: string): Shortcut | undefined {
  for (const set of boundShortcuts.peek().toReversed()) {
    const shortcut =
      set[name] ?? (name.length === 1 ? (set[name.toLowerCase()] ?? set[name.toUpperCase()]) : undefined);
    if (shortcut) return shortcut;
  }
  return undefined;
}

function isSequenceStart(name: string): boolean {
  return boundShortcuts.peek().some((set) => Object.keys(set).some((key) => key.startsWith(`${name} `)));
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || isTextInput(event.target)) return;
  if (document.querySelector(":is(dialog[open], :popover-open)")) return;
  const name = keyName(event);
  const sequence = sequenceStart && event.timeStamp - sequenceStartedAt < SEQUENCE_MS ? `${sequenceStart} ${name}` : "";
  sequenceStart = "";
  const shortcut =
    (sequence ? findShortcut(sequence) : undefined) ??
    (isButtonKey(event.target, name) ? undefined : findShortcut(name));
  if (shortcut) {
    event.preventDefault();
    shortcut.run(event);
  } else if (isSequenceStart(name)) {
    sequenceStart = name;
    sequenceStartedAt = event.timeStamp;
  }
}

/** Bind shortcuts until the returned function is called. Keys in input fields and in open dialogs are ignored. */
export function bindShortcuts(set: Shortcuts): () => void {
  if (!boundShortcuts.peek().length) document.addEventListener("keydown", onKey);
  boundShortcuts.value = [...boundShortcuts.peek(), set];
  return () => {
    boundShortcuts.value = boundShortcuts.peek().filter((other) => other !== set);
    if (!boundShortcuts.peek().length) document.removeEventListener("keydown", onKey);
  };
}
