/** Form fields that are bound to the page's state. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { state } from "./model/state";

type StateKey<T> = {
  [K in keyof typeof state]: (typeof state)[K] extends { value: T } ? K : never;
}[keyof typeof state];

/** A checkbox. */
export function CheckboxField({
  name,
  title,
  children,
}: {
  name: StateKey<boolean>;
  title?: string;
  children: ComponentChildren;
}) {
  const field = state[name];
  return (
    <label class="inline" title={title}>
      <input type="checkbox" checked={field.value} onChange={(event) => (field.value = event.currentTarget.checked)} />
      {children}
    </label>
  );
}

interface IntegerFieldProps {
  name: StateKey<number>;
  text: string;
  min: number;
  max: number;
}

/** A field for an integer within bounds. */
export function IntegerField({ name, text, min, max }: IntegerFieldProps) {
  const field = state[name];
  return (
    <label class="inline">
      {text}
      <input
        class="num short"
        type="number"
        min={min}
        max={max}
        value={field.value}
        onChange={(event) =>
          (field.value = Math.max(min, Math.min(max, Math.round(Number(event.currentTarget.value)) || min)))
        }
      />
    </label>
  );
}

interface NumberFieldProps {
  text: string;
  value: string;
  error: string | undefined;
  /** ID of the element with the error message. */
  note?: string;
  id?: string;
  size?: number;
  onChange: (text: string) => void;
}

/** A field for a number expression such as 2^89-1. */
export function NumberField({ text, value, error: why, note, id, size, onChange: set }: NumberFieldProps) {
  // the typed text survives a new rendering of the field
  const typed = useSignal<string | undefined>(undefined);
  return (
    <label class={id ? "inline grow number" : "inline"}>
      {text}
      <input
        class="num"
        id={id}
        size={size}
        value={typed.value ?? value}
        aria-invalid={!!why}
        aria-describedby={note}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => (typed.value = event.currentTarget.value)}
        onChange={(event) => {
          typed.value = undefined;
          set(event.currentTarget.value.trim());
        }}
      />
    </label>
  );
}
