/** Dialogs of the browser's own kind: focus stays inside, Escape closes, focus returns. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./button";

interface DialogProps {
  title: string;
  /** Without it, the dialog stays until its own form is done. */
  onClose?: () => void;
  children: ComponentChildren;
  class?: string;
}

/** Open for as long as it is rendered. */
export function Dialog({ title, onClose, children, class: name }: DialogProps) {
  const self = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    self.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={self}
      class={name}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClick={(event) => event.target === self.current && onClose?.()}
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
  act: string;
  danger?: boolean;
}

const asked = signal<(Question & { answer: (yes: boolean) => void }) | undefined>(undefined);

/** Asks once before something that cannot be undone. */
export function confirm(question: Question): Promise<boolean> {
  asked.value?.answer(false);
  return new Promise((done) => {
    asked.value = {
      ...question,
      answer: (yes) => {
        asked.value = undefined;
        done(yes);
      },
    };
  });
}

export function Confirmation() {
  const question = asked.value;
  if (!question) return null;
  return (
    <Dialog title={question.title} onClose={() => question.answer(false)} key={question.title + question.text}>
      <p>{question.text}</p>
      <div class="dialog-foot">
        <Button onClick={() => question.answer(false)}>Keep as it is</Button>
        <Button class={question.danger ? "danger" : "primary"} autofocus onClick={() => question.answer(true)}>
          {question.act}
        </Button>
      </div>
    </Dialog>
  );
}
