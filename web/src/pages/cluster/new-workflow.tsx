/** Dialog for a new workflow, whose text is validated while typing and submitted when it is valid. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { KINDS } from "../../kinds";
import { asProblem, type ValidationError, type Validation } from "../../lib/api";
import { formatCount, formatInteger } from "../../lib/format";
import { createIdempotencyKey } from "../../lib/jobs";
import { Button, TextButton } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { showToast } from "../../ui/toast";
import { openWorkflow } from "./model/state";
import { textOffset, submitWorkflow, validateWorkflow } from "./model/workflows";

const EXAMPLE_FIELDS = (Object.values(KINDS).find((kind) => kind.exampleAction)?.exampleAction ?? [])
  .map((field) => `    ${field}\n`)
  .join("");
const EXAMPLE = `name: a job after another
actions:
  - action_id: first
${EXAMPLE_FIELDS}  - action_id: second
    dependencies: [first]
${EXAMPLE_FIELDS}`;
/** Maximum size of a workflow text in MiB. */
const MAX_MIB = 4;

/** Last text, restored when the dialog opens again. */
let draft = "";

export function NewWorkflow({ onClose }: { onClose: () => void }) {
  const text = useSignal(draft);
  const found = useSignal<Validation | undefined>(undefined);
  const problem = useSignal("");
  const busy = useSignal(false);
  const sent = useRef(createIdempotencyKey());
  const field = useRef<HTMLTextAreaElement>(null);
  const write = (next: string) => {
    text.value = draft = next;
    found.value = undefined;
    problem.value = "";
    sent.current = createIdempotencyKey();
  };
  const attempt = async (submits: boolean) => {
    if (busy.peek()) return;
    busy.value = true;
    problem.value = "";
    try {
      const answer = await validateWorkflow(text.peek());
      found.value = answer;
      if (submits && answer.valid && !answer.notes.length) {
        const row = await submitWorkflow(text.peek(), sent.current);
        draft = "";
        showToast(`Submitted workflow ${row.name}`);
        onClose();
        openWorkflow(row.workflow_id);
      }
    } catch (error) {
      problem.value = asProblem(error).detail;
    }
    busy.value = false;
  };
  const read = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > MAX_MIB << 20) problem.value = `${file.name} is larger than ${MAX_MIB} MiB`;
    else write(await file.text());
  };
  const show = (complaint: ValidationError) => {
    const at = textOffset(text.peek(), complaint);
    field.current?.focus();
    field.current?.setSelectionRange(at, at);
  };
  const wrong = found.value ? [...found.value.problems, ...found.value.notes] : [];
  return (
    <Dialog title="New workflow" onClose={onClose} class="broad">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void attempt(true);
        }}
      >
        <div class="field">
          <label for="workflow-text">YAML or JSON</label>
          <textarea
            id="workflow-text"
            ref={field}
            rows={16}
            spellcheck={false}
            value={text.value}
            placeholder={EXAMPLE}
            aria-invalid={wrong.length > 0}
            onInput={(event) => write(event.currentTarget.value)}
          />
        </div>
        <div class="row">
          <label>
            From a file <input type="file" onChange={(event) => void read(event.currentTarget.files?.[0])} />
          </label>
          <TextButton onClick={() => write(EXAMPLE)}>Fill in an example</TextButton>
        </div>
        {wrong.length > 0 && <ErrorList list={wrong} more={found.value?.more ?? 0} onShow={show} />}
        {found.value?.valid && !wrong.length && <p role="status">{describeValidation(found.value)}</p>}
        {problem.value && (
          <p class="trouble" role="alert">
            {problem.value}
          </p>
        )}
        <div class="dialog-foot">
          <Button disabled={!text.value.trim() || busy.value} onClick={() => void attempt(false)}>
            Validate
          </Button>
          <button type="submit" class="primary" disabled={!text.value.trim() || busy.value}>
            Submit
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Validation errors with links to their positions. */
interface ErrorListProps {
  list: readonly ValidationError[];
  more: number;
  onShow: (complaint: ValidationError) => void;
}

function ErrorList({ list, more, onShow }: ErrorListProps) {
  return (
    <div class="trouble complaints" role="alert" aria-label="Errors">
      <ul>
        {list.map((each, index) => (
          <li key={index}>
            <Button class="link num" onClick={() => onShow(each)}>
              {each.line}:{each.column}
            </Button>{" "}
            {[each.action, each.field].filter(Boolean).join(": ")} {each.detail}
          </li>
        ))}
      </ul>
      {more > 0 && <p>and {formatInteger(more)} more</p>}
    </div>
  );
}

function describeValidation({ actions, edges, layers }: Validation): string {
  const depends = formatCount(edges, "dependency", "dependencies");
  return `The workflow is valid: ${formatCount(actions, "action")}, ${depends}, ${formatCount(layers, "layer")}.`;
}
