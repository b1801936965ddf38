/** A dialog with fields that are sent to the cluster. The cluster's error message is shown at its field. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { asProblem, type Problem } from "../../../lib/api";

import { Button } from "../../../ui/button";
import { Dialog } from "../../../ui/dialog";
import type { Schema } from "../../../ui/fields";
import { SchemaForm } from "../../../ui/form";

interface Props {
  title: string;
  schema: Schema;
  initial?: Record<string, unknown>;
  submitLabel: string;
  /** Further fields, such as passwords. */
  children?: ComponentChildren;
  send: (values: Record<string, unknown>) => Promise<unknown>;
  /** A second button, which shows a text about the values without sending them. */
  check?: { label: string; run: (values: Record<string, unknown>) => Promise<string> };
  onClose: () => void;
}

export function FormDialog({ title, schema, initial = {}, submitLabel, children, send, check, onClose }: Props) {
  const values = useSignal<Record<string, unknown>>(initial);
  const problem = useSignal<Problem | undefined>(undefined);
  const isBusy = useSignal(false);
  const checked = useSignal("");
  const attempt = async (work: () => Promise<void>) => {
    if (isBusy.peek()) return;
    isBusy.value = true;
    problem.value = undefined;
    try {
      await work();
    } catch (error) {
      problem.value = asProblem(error);
    }
    isBusy.value = false;
  };
  const submit = () =>
    attempt(async () => {
      await send(values.peek());
      onClose();
    });
  const show = () =>
    attempt(async () => {
      checked.value = (await check?.run(values.peek())) ?? "";
    });
  const field = problem.value?.field?.split(".")[0] ?? "";
  const isAtField = field in (schema.properties ?? {});
  const detail = problem.value?.detail;
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <SchemaForm
          schema={schema}
          value={values.value}
          errors={isAtField && detail ? { [field]: detail } : {}}
          onChange={(next) => {
            values.value = next;
            checked.value = "";
          }}
        />
        {children}
        {detail && !isAtField && (
          <p class="trouble" role="alert">
            {detail}
          </p>
        )}
        {checked.value && <p role="status">{checked.value}</p>}
        <div class="dialog-foot">
          {check && (
            <Button disabled={isBusy.value} onClick={() => void show()}>
              {check.label}
            </Button>
          )}
          <button type="submit" class="primary" disabled={isBusy.value}>
            {submitLabel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
