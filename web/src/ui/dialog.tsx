/** Native dialogs, which keep the focus inside, close on Escape and restore the focus. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./button";

interface DialogProps {
  title: string;
  /** If absent, the dialog stays open until its form is finished. */
  onClose?: () => void;
  children: ComponentChildren;
  class?: string;
}

/** Dialog that is open while it is rendered. */
export function Dialog({ title, onClose, children, class: name }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={name}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClick={(event) => event.target === dialog.current && onClose?.()}
    >
      <div class="dialog-head">
        <h2 id={id} class="grow">
          {title}
        </h2>
        {onClose && (
          <Button class="plain" onClick={onClose}>
            Close
          </Button>
        )}
      </div>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  buttonLabel: string;
  /** Label of the button that changes nothing. */
  keepLabel?: string;
  isDangerous?: boolean;
}

const openQuestion = signal<(Question & { answer: (yes: boolean) => void }) | undefined>(undefined);

/** Ask for confirmation of an irreversible action. */
export function askConfirmation(question: Question): Promise<boolean> {
  openQuestion.value?.answer(false);
  return new Promise((resolve) => {
    openQuestion.value = {
      ...question,
      answer: (yes) => {
        openQuestion.value = undefined;
        resolve(yes);
      },
    };
  });
}

export function ConfirmationDialog() {
  const question = openQuestion.value;
  if (!question) return null;
  return (
    <Dialog title={question.title} onClose={() => question.answer(false)} key={question.title + question.text}>
      <p>{question.text}</p>
      <div class="dialog-foot">
        <Button onClick={() => question.answer(false)}>{question.keepLabel ?? "Keep unchanged"}</Button>
        <Button class={question.isDangerous ? "danger" : "primary"} autofocus onClick={() => question.answer(true)}>
          {question.buttonLabel}
        </Button>
      </div>
    </Dialog>
  );
}
