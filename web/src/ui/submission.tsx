/** Form for a new job, from the kind's schema, with the API's error messages and copies for a shell and Python. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { KINDS } from "../kinds";
import { asProblem, isLoggedIn, maySubmit, session, type Problem, type Kind } from "../lib/api";
import { copyText } from "../lib/export";
import { formatSeconds } from "../lib/format";
import { sendSubmission, type SubmitOptions } from "../lib/jobs";
import type { Draft } from "../lib/draft";
import { formatCurl, formatPython, createSubmission, type Submission } from "../lib/submission";
import { Button, TextButton } from "./button";
import type { Schema } from "./fields";
import { SchemaForm } from "./form";
import { lazy } from "./lazy";
import { showToast } from "./toast";

const ProgramForm = lazy(() => import("./program-form").then((part) => part.ProgramForm));

/** Convert an API field such as "parameters.spawn.mean" to the form's field "spawn.mean". */
function formFieldName(text: string): string {
  return text.replace(/^parameters\./, "");
}

function fieldErrors(problem: Problem | undefined): Record<string, string> {
  if (!problem?.field) return {};
  return { [formFieldName(problem.field)]: formFieldName(problem.detail) };
}

/** Focus the rejected field, unfolding its group. */
function focusInvalidField(form: HTMLFormElement | null): void {
  const field = form?.querySelector<HTMLElement>("[aria-invalid='true']");
  const folded = field?.closest("details");
  if (folded) folded.open = true;
  field?.focus();
}

interface KindFormProps {
  kind: Kind;
  /** Kinds to choose from; if absent, the kind is fixed. */
  kinds?: readonly Kind[];
  draft: Draft;
  onChange: (draft: Draft) => void;
  onSubmitted: (job: string) => void;
}

/** Form that submits its draft and shows the API's response. */
export function KindForm({ kinds, kind, draft, onChange, onSubmitted }: KindFormProps) {
  const problem = useSignal<Problem | undefined>(undefined);
  const isBusy = useSignal(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (problem.value) focusInvalidField(form.current);
  }, [problem.value]);
  const change = (next: Partial<Draft>) => onChange({ ...draft, kind: kind.type, ...next });
  const schema = kind.schema as Schema;
  // Programs run on runners, so there is no device to choose.
  const hasPrograms = KINDS[kind.type]?.hasPrograms;
  const submittedDraft = { ...draft, kind: kind.type, ...(hasPrograms ? { device: "any" as const } : {}) };
  const errors = fieldErrors(problem.value);
  const hasVisibleField = Object.keys(errors).some((path) => schema.properties?.[path.split(".")[0] ?? ""]);
  const send = async (event: Event) => {
    event.preventDefault();
    if (isBusy.peek()) return;
    isBusy.value = true;
    problem.value = undefined;
    try {
      const { type, parameters, ...options } = createSubmission(submittedDraft);
      const submission = await sendSubmission(type, parameters, options as SubmitOptions);
      const wait = submission.estimated_wait_seconds;
      showToast(
        wait === null
          ? `Job ${submission.job_id} submitted; its start cannot be estimated`
          : `Job ${submission.job_id} submitted${wait > 1 ? `; it waits about ${formatSeconds(wait)}` : ""}`,
      );
      onSubmitted(submission.job_id);
    } catch (error) {
      problem.value = asProblem(error);
    }
    isBusy.value = false;
  };
  return (
    <form ref={form} class="stack" onSubmit={(event) => void send(event)} noValidate>
      <div class="fields">
        {kinds && (
          <SelectField
            title="kind"
            options={kinds.map((each) => each.type)}
            value={kind.type}
            onChange={(name) => change({ kind: name, parameters: {} })}
          />
        )}
        <TextField title="name" value={draft.name} onChange={(name) => change({ name })} />
        <TextField
          title="tags"
          placeholder="separated by commas"
          value={draft.tags.join(", ")}
          onChange={(text) =>
            change({
              tags: text
                .split(",")
                .map((tag) => tag.trim())
                .filter(Boolean),
            })
          }
        />
        <SelectField
          title="priority"
          options={["high", "normal", "low"]}
          value={draft.priority}
          onChange={(priority) => change({ priority })}
        />
        {!hasPrograms && (
          <SelectField
            title="device"
            options={["any", "cpu", "gpu"]}
            value={draft.device}
            onChange={(device) => change({ device })}
          />
        )}
      </div>
      <p class="soft">
        {kind.summary}{" "}
        <TextButton onClick={() => change({ parameters: { ...kind.example } })}>Fill in an example</TextButton>
      </p>
      {hasPrograms ? (
        <ProgramForm
          schema={schema}
          value={draft.parameters}
          errors={errors}
          onChange={(parameters) => change({ parameters })}
        />
      ) : (
        <SchemaForm
          schema={schema}
          value={draft.parameters}
          mainFields={KINDS[kind.type]?.mainParameters}
          errors={errors}
          onChange={(parameters) => change({ parameters })}
        />
      )}
      {problem.value && (!hasVisibleField || !problem.value.field) && (
        <p class="trouble" role="alert">
          {formFieldName(problem.value.detail)}
        </p>
      )}
      {problem.value && hasVisibleField && (
        <p class="bad" role="alert">
          Refused: {formFieldName(problem.value.detail)}
        </p>
      )}
      <div class="dialog-foot">
        <CopyButtons submission={createSubmission(submittedDraft)} />
        <span class="grow" />
        <button
          type="submit"
          class="primary"
          disabled={isBusy.value || (session.value !== undefined && !maySubmit(kind.type))}
        >
          {isBusy.value ? "Submitting" : "Submit"}
        </button>
      </div>
    </form>
  );
}

/** Optional text, stored when the field loses the focus. */
function TextField({
  title,
  value,
  placeholder,
  onChange,
}: {
  title: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}) {
  return (
    <div class="field">
      <label for={`new-${title}`}>{title}</label>
      <input
        id={`new-${title}`}
        value={value}
        placeholder={placeholder}
        autocomplete="off"
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    </div>
  );
}

function SelectField<T extends string>({
  title,
  options,
  value,
  onChange,
}: {
  title: string;
  options: readonly T[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <div class="field">
      <label for={`new-${title}`}>{title}</label>
      <select id={`new-${title}`} value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </div>
  );
}

export function CopyButtons({ submission }: { submission: Submission }) {
  const copyAs = async (name: string, text: string) => {
    showToast((await copyText(text)) ? `Copied as ${name}` : "The browser does not allow this page to copy");
  };
  return (
    <>
      <Button onClick={() => void copyAs("curl", formatCurl(submission, location.origin, isLoggedIn.value))}>
        Copy as curl
      </Button>
      <Button onClick={() => void copyAs("Python", formatPython(submission, location.origin))}>Copy as Python</Button>
    </>
  );
}
