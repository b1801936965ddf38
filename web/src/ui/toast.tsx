/** Short notices at the edge of the page; errors stay until they are dismissed. */

import { signal } from "@preact/signals";
import { Problem } from "../lib/api";
import { messageOf } from "../lib/errors";
import { Button } from "./button";

interface Toast {
  id: number;
  text: string;
  action?: { text: string; run: () => void } | undefined;
  lasting: boolean;
}

const shown = signal<readonly Toast[]>([]);
const SECONDS = 6;
let count = 0;

function dismiss(id: number): void {
  shown.value = shown.value.filter((each) => each.id !== id);
}

/** Show a notice with at most one action, such as Undo. */
export function toast(text: string, action?: Toast["action"], lasting = false): void {
  count += 1;
  const id = count;
  const others = shown.value.filter((each) => each.text !== text);
  shown.value = [...others.slice(-3), { id, text, action, lasting }];
  if (!lasting) setTimeout(() => dismiss(id), SECONDS * 1000);
}

/** Show the API's error message for a failed action. */
export function failed(what: string, error: unknown): void {
  const said = messageOf(error);
  const request = error instanceof Problem && error.request ? ` (request ${error.request})` : "";
  toast(`${what}: ${said}${request}`, undefined, true);
}

/** Await an action, report the outcome, and return whether it succeeded. */
export async function attempt(what: string, told: string, work: Promise<unknown>): Promise<boolean> {
  try {
    await work;
    toast(told);
    return true;
  } catch (error) {
    failed(what, error);
    return false;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map((each) => (
        <div class="toast" key={each.id}>
          <span class="grow">{each.text}</span>
          {each.action && (
            <Button
              onClick={() => {
                dismiss(each.id);
                each.action?.run();
              }}
            >
              {each.action.text}
            </Button>
          )}
          <Button onClick={() => dismiss(each.id)}>Dismiss</Button>
        </div>
      ))}
    </div>
  );
}
