/** A dialog with fields that are sent to the cluster. The cluster's error message is shown at its field. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { asProblem, type Problem } from "../../../lib/api";

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
  onClose: () => void;
}

export function FormDialog({ title, schema, initial = {}, submitLabel, children, send, onClose }: Props) {
  const values = useSignal<Record<string, unknown>>(initial);
  const problem = useSignal<Problem | undefined>(undefined);
  const isBusy = useSignal(false);
  const submit = async () => {
    if (isBusy.peek()) return;
    isBusy.value = true;
    problem.value = undefined;
    try {
      await send(values.peek());
      onClose();
    } catch (error) {
      problem.value = asProblem(error);
    }
    isBusy.value = false;
  };
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
          onChange={(next) => (values.value = next)}
        />
        {children}
        {detail && !isAtField && (
          <p class="trouble" role="alert">
            {detail}
          </p>
        )}
        <div class="dialog-foot">
          <button type="submit" class="primary" disabled={isBusy.value}>
            {submitLabel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
