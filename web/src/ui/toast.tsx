/** Short notices at the edge of the page; errors stay until they are dismissed. */

import { signal } from "@preact/signals";
import { Problem } from "../lib/api";
import { messageOf } from "../lib/errors";
import { Button } from "./button";

interface Toast {
  id: number;
  text: string;
  action?: { text: string; run: () => void } | undefined;
  isLasting: boolean;
}

const toasts = signal<readonly Toast[]>([]);
const TOAST_SECONDS = 6;
let count = 0;

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Show a notice with at most one action, such as Undo. */
export function showToast(text: string, action?: Toast["action"], isLasting = false): void {
  count += 1;
  const id = count;
  const others = toasts.value.filter((each) => each.text !== text);
  toasts.value = [...others.slice(-3), { id, text, action, isLasting }];
  if (!isLasting) setTimeout(() => dismiss(id), TOAST_SECONDS * 1000);
}

/** Show the API's error message for a failed action. */
export function showError(subject: string, error: unknown): void {
  const message = messageOf(error);
  const request = error instanceof Problem && error.request ? ` (request ${error.request})` : "";
  showToast(`${subject}: ${message}${request}`, undefined, true);
}

/** Await an action, report the outcome, and return whether it succeeded. */
export async function runAction(subject: string, successText: string, action: Promise<unknown>): Promise<boolean> {
  try {
    await action;
    showToast(successText);
    return true;
  } catch (error) {
    showError(subject, error);
    return false;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((each) => (
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
