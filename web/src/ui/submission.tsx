/** Form for a new job, from the kind's schema, with the API's error messages and copies for a shell and Python. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { KINDS } from "../kinds";
import { asProblem, isLoggedIn, type Problem, type Kind } from "../lib/api";
import { copyText } from "../lib/export";
import { formatSeconds } from "../lib/format";
import { sendSubmission } from "../lib/jobs";
import { formatCurl, formatPython, createSubmission, type Draft, type Submission } from "../lib/submission";
import { Button, TextButton } from "./button";
import type { Schema } from "./fields";
import { SchemaForm } from "./form";
import { later } from "./later";
import { toast } from "./toast";

const ProgramForm = later(() => import("./program-form").then((part) => part.ProgramForm));

/** Convert an API field such as "parameters.spawn.mean" to the form's field "spawn.mean". */
function named(text: string): string {
  return text.replace(/^parameters\./, "");
}

function errorsOf(problem: Problem | undefined): Record<string, string> {
  if (!problem?.field) return {};
  return { [named(problem.field)]: named(problem.detail) };
}

/** Focus the rejected field, unfolding its group. */
function goToRefused(form: HTMLFormElement | null): void {
  const field = form?.querySelector<HTMLElement>("[aria-invalid='true']");
  const folded = field?.closest("details");
  if (folded) folded.open = true;
  field?.focus();
}

interface KindFormProps {
  kind: Kind;
  /** Kinds to choose from; if absent, the kind is fixed. */
  kinds?: readonly Kind[];
  given: Draft;
  onChange: (draft: Draft) => void;
  onSubmitted: (job: string) => void;
}

/** Form that submits its draft and shows the API's response. */
export function KindForm({ kinds: all, kind, given, onChange, onSubmitted }: KindFormProps) {
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (problem.value) goToRefused(form.current);
  }, [problem.value]);
  const change = (next: Partial<Draft>) => onChange({ ...given, kind: kind.type, ...next });
  const schema = kind.schema as Schema;
  // Programs run on runners, so there is no device to choose.
  const programs = KINDS[kind.type]?.hasPrograms;
  const errors = errorsOf(problem.value);
  const placed = Object.keys(errors).some((path) => schema.properties?.[path.split(".")[0] ?? ""]);
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy.peek()) return;
    busy.value = true;
    problem.value = undefined;
    try {
      const options = { priority: given.priority, ...(programs ? {} : { device: given.device }) };
      const answer = await sendSubmission(kind.type, given.parameters, options);
      const wait = answer.estimated_wait_seconds;
      toast(
        wait === null
          ? `Job ${answer.job_id} waits: no live worker serves its queue`
          : `Job ${answer.job_id} submitted${wait > 1 ? `; it waits about ${formatSeconds(wait)}` : ""}`,
      );
      onSubmitted(answer.job_id);
    } catch (error) {
      problem.value = asProblem(error);
    }
    busy.value = false;
  };
  return (
    <form ref={form} class="stack" onSubmit={(event) => void send(event)} noValidate>
      <div class="fields">
        {all && (
          <Option
            title="kind"
            options={all.map((each) => each.type)}
            value={kind.type}
            onChange={(name) => change({ kind: name, parameters: {} })}
          />
        )}
        <Option
          title="priority"
          options={["high", "normal", "low"]}
          value={given.priority}
          onChange={(priority) => change({ priority })}
        />
        {!programs && (
          <Option
            title="device"
            options={["any", "cpu", "gpu"]}
            value={given.device}
            onChange={(device) => change({ device })}
          />
        )}
      </div>
      <p class="soft">
        {kind.summary}{" "}
        <TextButton onClick={() => change({ parameters: { ...kind.example } })}>Fill in an example</TextButton>
      </p>
      {programs ? (
        <ProgramForm
          schema={schema}
          value={given.parameters}
          errors={errors}
          onChange={(parameters) => change({ parameters })}
        />
      ) : (
        <SchemaForm
          schema={schema}
          value={given.parameters}
          few={KINDS[kind.type]?.mainParameters}
          errors={errors}
          onChange={(parameters) => change({ parameters })}
        />
      )}
      {problem.value && (!placed || !problem.value.field) && (
        <p class="trouble" role="alert">
          {named(problem.value.detail)}
        </p>
      )}
      {problem.value && placed && (
        <p class="bad" role="alert">
          Refused: {named(problem.value.detail)}
        </p>
      )}
      <div class="dialog-foot">
        <Copies submission={createSubmission({ ...given, kind: kind.type, device: programs ? "any" : given.device })} />
        <span class="grow" />
        <button type="submit" class="primary" disabled={busy.value}>
          {busy.value ? "Submitting" : "Submit"}
        </button>
      </div>
    </form>
  );
}

function Option<T extends string>({
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

function Copies({ submission }: { submission: Submission }) {
  const give = async (name: string, text: string) => {
    toast((await copyText(text)) ? `Copied as ${name}` : "The browser does not allow this page to copy");
  };
  return (
    <>
      <Button onClick={() => void give("curl", formatCurl(submission, location.origin, isLoggedIn.value))}>
        Copy as curl
      </Button>
      <Button onClick={() => void give("Python", formatPython(submission, location.origin))}>Copy as Python</Button>
    </>
  );
}
