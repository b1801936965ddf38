/** A new job: a form made of the kind's schema, refused in the API's words, kept as a command. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Problem, token, type Kind } from "../../lib/api";
import { copy } from "../../lib/export";
import { seconds } from "../../lib/format";
import { kinds, submitted } from "../../lib/jobs";
import { Dialog } from "../../ui/dialog";
import type { Schema } from "../../ui/fields";
import { SchemaForm } from "../../ui/form";
import { Skeleton } from "../../ui/table";
import { toast } from "../../ui/toast";
import { curl, python, type Submission } from "./model/snippets";
import { closeForm, draft, open, type Draft } from "./model/state";
import { Trouble } from "./trouble";

/** What most jobs of a kind need; the rest is under "more". A kind that is not here shows all. */
const FEW: Record<string, readonly string[]> = {
  collatz: ["mode", "start_number", "number_count", "n"],
  thread: ["thread_count", "max_depth", "replicas", "cores", "scheduler", "seed"],
};

export function SubmitDialog() {
  if (!draft.value) return null;
  return (
    <Dialog title="New job" class="broad" onClose={() => closeForm()}>
      <Form given={draft.value} />
    </Dialog>
  );
}

function Form({ given }: { given: Draft }) {
  const found = useSignal<readonly Kind[] | undefined>(undefined);
  const trouble = useSignal<Problem | undefined>(undefined);
  const load = () => {
    trouble.value = undefined;
    kinds().then(
      (list) => (found.value = list),
      (error: unknown) => (trouble.value = error instanceof Problem ? error : new Problem(0, "Failed", String(error))),
    );
  };
  useEffect(load, []);
  if (trouble.value) return <Trouble what="list of kinds" problem={trouble.value} onRetry={load} />;
  if (!found.value) return <Skeleton rows={6} />;
  const kind = found.value.find((each) => each.type === given.kind) ?? found.value[0];
  return kind ? (
    <KindForm key={kind.type} kinds={found.value} kind={kind} given={given} />
  ) : (
    <p>This cluster has no kind of job.</p>
  );
}

/** "parameters.spawn.mean" belongs to the field "spawn.mean". */
function errorsOf(problem: Problem | undefined): Record<string, string> {
  if (!problem?.field) return {};
  return { [problem.field.replace(/^parameters\./, "")]: problem.detail };
}

function submissionOf(kind: Kind, given: Draft): Submission {
  const priority = given.priority === "normal" ? {} : { priority: given.priority };
  const device = given.device === "any" ? {} : { device: given.device };
  return { type: kind.type, parameters: given.parameters, ...priority, ...device };
}

function KindForm({ kinds: all, kind, given }: { kinds: readonly Kind[]; kind: Kind; given: Draft }) {
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const change = (next: Partial<Draft>) => (draft.value = { ...given, kind: kind.type, ...next });
  const schema = kind.schema as Schema;
  const errors = errorsOf(problem.value);
  const placed = Object.keys(errors).some((path) => schema.properties?.[path.split(".")[0] ?? ""]);
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy.peek()) return;
    busy.value = true;
    problem.value = undefined;
    try {
      const answer = await submitted(kind.type, given.parameters, { priority: given.priority, device: given.device });
      const wait = answer.estimated_wait_seconds;
      toast(
        wait === null
          ? `Job ${answer.job_id} waits: no live worker serves its queue`
          : `Job ${answer.job_id} submitted${wait > 1 ? `; it waits about ${seconds(wait)}` : ""}`,
      );
      closeForm();
      open(answer.job_id);
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem(0, "Failed", String(error));
    }
    busy.value = false;
  };
  return (
    <form class="stack" onSubmit={(event) => void send(event)} noValidate>
      <div class="fields">
        <div class="field">
          <label for="new-kind">kind</label>
          <select
            id="new-kind"
            value={kind.type}
            onChange={(event) => change({ kind: event.currentTarget.value, parameters: {} })}
          >
            {all.map((each) => (
              <option key={each.type} value={each.type}>
                {each.type}
              </option>
            ))}
          </select>
        </div>
        <Option
          title="priority"
          options={["high", "normal", "low"]}
          value={given.priority}
          onChange={(priority) => change({ priority })}
        />
        <Option
          title="device"
          options={["any", "cpu", "gpu"]}
          value={given.device}
          onChange={(device) => change({ device })}
        />
      </div>
      <p class="soft">
        {kind.summary}{" "}
        <button type="button" class="link" onClick={() => change({ parameters: { ...kind.example } })}>
          Fill in an example
        </button>
      </p>
      <SchemaForm
        schema={schema}
        value={given.parameters}
        few={FEW[kind.type]}
        errors={errors}
        onChange={(parameters) => change({ parameters })}
      />
      {problem.value && (!placed || !problem.value.field) && (
        <p class="trouble" role="alert">
          {problem.value.detail}
        </p>
      )}
      {problem.value && placed && (
        <p class="bad" role="alert">
          Refused: {problem.value.detail}
        </p>
      )}
      <div class="dialog-foot">
        <Copies submission={submissionOf(kind, given)} />
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
    toast((await copy(text)) ? `Copied as ${name}` : "The browser does not let this page copy");
  };
  return (
    <>
      <button type="button" onClick={() => void give("curl", curl(submission, location.origin, token() !== ""))}>
        Copy as curl
      </button>
      <button type="button" onClick={() => void give("Python", python(submission, location.origin))}>
        Copy as Python
      </button>
    </>
  );
}
