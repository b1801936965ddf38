/** Form for programs: command, repetitions and files first; limits and requirements are folded. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { get, type Artifact } from "../lib/api";
import { formatInteger } from "../lib/format";
import { removeUnset, type Schema } from "./fields";
import { SchemaForm } from "./form";
import {
  describeArtifact,
  parseCommand,
  formatCommand,
  checkCommand,
  parseEnvironment,
  formatEnvironment,
  GROUPS,
  objectSchema,
  parseItems,
  formatItems,
  selectParameters,
  otherParameters,
  MAIN_PARAMETERS,
  describeSetFields,
  repetitionOf,
  commandForm,
  type Repetition,
  type Values,
  type CommandForm,
} from "./program";

interface Props {
  schema: Schema;
  value: Values;
  onChange: (value: Record<string, unknown>) => void;
  errors: Readonly<Record<string, string>>;
}

export function ProgramForm(props: Props) {
  const { schema, value, onChange, errors } = props;
  const set = (next: Values) => onChange(removeUnset({ ...value, ...next }));
  const artifacts = useSignal<readonly Artifact[]>([]);
  useEffect(() => {
    get<{ artifacts: Artifact[] }>("/api/artifacts", { limit: 1000 }).then(
      (answer) => (artifacts.value = answer.artifacts),
      () => undefined, // users without permission to list artifacts can still name one
    );
  }, []);
  const rest = otherParameters(schema);
  return (
    <div class="stack program-form">
      <CommandField value={value} error={errors.command} onChange={set} />
      <RepetitionFields value={value} errors={errors} onChange={set} artifacts={artifacts.value} />
      <div>
        <FileField
          label="files"
          hint="A folder stored in the cluster, for example with cluster artifact put; each run gets a copy of it"
          value={value.files}
          error={errors.files}
          artifacts={artifacts.value}
          onChange={(files) => set({ files })}
        />
      </div>
      <SchemaForm schema={selectParameters(schema, ["outputs"])} value={value} errors={errors} onChange={onChange} />
      <RequirementFields {...props} />
      {GROUPS.map(({ title, names }) => (
        <Group key={title} title={title} schema={schema} names={names} value={value} errors={errors}>
          {names.includes("env") && (
            <EnvironmentField value={value.env} error={errors.env} onChange={(env) => set({ env })} />
          )}
          <SchemaForm
            schema={selectParameters(
              schema,
              names.filter((name) => !MAIN_PARAMETERS.includes(name as never)),
            )}
            value={value}
            errors={errors}
            onChange={onChange}
          />
        </Group>
      ))}
      {rest.length > 0 && (
        <Group title="More parameters" schema={schema} names={rest} value={value} errors={errors}>
          <SchemaForm schema={selectParameters(schema, rest)} value={value} errors={errors} onChange={onChange} />
        </Group>
      )}
    </div>
  );
}

interface GroupProps {
  title: string;
  schema: Schema;
  names: readonly string[];
  value: Values;
  errors: Readonly<Record<string, string>>;
  children: ComponentChildren;
}

/** A folded group of fields, open if a field is set or invalid. */
function Group({ title, schema, names, value, errors, children }: GroupProps) {
  const words = describeSetFields(schema, value, names);
  const wrong = Object.keys(errors).some((path) => names.includes(path.split(".")[0] ?? ""));
  const [first] = useState(words !== "");
  return (
    <details open={first || wrong}>
      <summary>
        {title} {words && <span class="soft small">{words}</span>}
      </summary>
      <div class="stack">{children}</div>
    </details>
  );
}

/** Requirements on a runner: the fields of one parameter. */
function RequirementFields({ schema, value, onChange, errors }: Props) {
  const own = objectSchema(schema, "requirements");
  if (!own) return null;
  const requirements = (value.requirements ?? {}) as Values;
  const wrong = Object.fromEntries(
    Object.entries(errors).flatMap(([path, text]) => {
      const [first, ...rest] = path.split(".");
      return first === "requirements" ? [[rest.join("."), text]] : [];
    }),
  );
  const change = (next: Record<string, unknown>) =>
    onChange(removeUnset({ ...value, requirements: Object.keys(next).length ? next : undefined }));
  return (
    <Group
      title="GPUs, CPUs and memory"
      schema={own}
      names={Object.keys(own.properties ?? {})}
      value={requirements}
      errors={wrong}
    >
      <SchemaForm schema={own} value={requirements} errors={wrong} onChange={change} />
    </Group>
  );
}

interface FieldProps {
  label: string;
  hint: ComponentChildren;
  error: string | undefined;
  children: (ids: { id: string; about: string; wrong: "true" | undefined }) => ComponentChildren;
}

function LabeledField({ label, hint, error, children }: FieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, about: `${id}-hint`, wrong: error ? "true" : undefined })}
      <p id={`${id}-hint`} class="small">
        {error && <span class="error">{error} </span>}
        <span class="hint">{hint}</span>
      </p>
    </div>
  );
}

interface TextAreaProps {
  name: string;
  label: string;
  hint: ComponentChildren;
  error?: string | undefined;
  rows: number;
  placeholder?: string;
  /** Conversion between the stored value and its text. */
  text: string;
  read: (text: string) => unknown;
  onChange: (value: unknown) => void;
}

/** Text area that keeps the typed text while it represents the stored value. */
function TextArea({ name, label, hint, error, rows, placeholder, text, read, onChange }: TextAreaProps) {
  const [typed, setTyped] = useState(text);
  const same = JSON.stringify(read(typed)) === JSON.stringify(read(text));
  return (
    <LabeledField label={label} hint={hint} error={error}>
      {({ id, about, wrong }) => (
        <textarea
          id={id}
          name={name}
          rows={rows}
          spellcheck={false}
          autocomplete="off"
          aria-describedby={about}
          aria-invalid={wrong}
          placeholder={placeholder}
          value={same ? typed : text}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            onChange(read(event.currentTarget.value));
          }}
        />
      )}
    </LabeledField>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onPick: (value: T) => void;
}

function ChoiceField<T extends string>({ label, options, value, onPick }: ChoiceProps<T>) {
  const name = useId();
  return (
    <div class="row" role="radiogroup" aria-label={label}>
      {options.map(([option, title]) => (
        <label class="row" key={option}>
          <input type="radio" name={name} checked={option === value} onChange={() => onPick(option)} />
          {title}
        </label>
      ))}
    </div>
  );
}

interface PartProps {
  value: Values;
  onChange: (next: Values) => void;
}

function CommandField({ value, error, onChange }: PartProps & { error: string | undefined }) {
  const [way, setWay] = useState<CommandForm>(value.command === undefined ? "shell" : commandForm(value.command));
  const current = value.command === undefined ? way : commandForm(value.command);
  const pick = (next: CommandForm) => {
    setWay(next);
    if (value.command !== undefined) onChange({ command: parseCommand(formatCommand(value.command), next) });
  };
  return (
    <div class="stack">
      <ChoiceField
        label="Command format"
        options={[
          ["shell", "Shell line"],
          ["arguments", "Arguments"],
        ]}
        value={current}
        onPick={pick}
      />
      <TextArea
        key={current}
        name="command"
        label="command"
        rows={current === "shell" ? 3 : 4}
        placeholder={
          current === "shell" ? "./simulate --seed $CLUSTER_UNIT > result.csv" : "./simulate\n--seed\n{unit}"
        }
        hint={
          current === "shell"
            ? "for /bin/sh; $CLUSTER_UNIT is the number of the run, from 0"
            : 'one argument per line, without quotes; {unit} and {item} are replaced, except in {"literal": "TEXT"}'
        }
        error={error ?? checkCommand(value.command)}
        text={formatCommand(value.command)}
        read={(text) => parseCommand(text, current)}
        onChange={(command) => onChange({ command })}
      />
    </div>
  );
}

interface RepetitionProps extends PartProps {
  errors: Readonly<Record<string, string>>;
  artifacts: readonly Artifact[];
}

function RepetitionFields({ value, errors, onChange, artifacts }: RepetitionProps) {
  const [picked, setPicked] = useState<Repetition>(repetitionOf(value));
  const pick = (next: Repetition) => {
    setPicked(next);
    onChange({
      count: next === "items" ? undefined : value.count,
      items: next === "items" ? value.items : undefined,
      items_artifact: next === "file" ? value.items_artifact : undefined,
    });
  };
  return (
    <div class="stack">
      <ChoiceField
        label="Number of runs"
        options={[
          ["count", "A fixed number"],
          ["items", "One run per item"],
          ["file", "One run per line of a file"],
        ]}
        value={picked}
        onPick={pick}
      />
      {picked === "items" ? (
        <TextArea
          name="items"
          label="items"
          rows={4}
          placeholder={'first\nsecond\n{"rate": 0.1}'}
          hint="One item per line, as text or JSON. A run gets its item as $CLUSTER_ITEM or {item}"
          error={errors.items}
          text={formatItems(value.items)}
          read={parseItems}
          onChange={(items) => onChange({ items })}
        />
      ) : (
        <div class="fields">
          <LabeledField label="count" hint={`Runs, 1 to ${formatInteger(100_000)}`} error={errors.count}>
            {({ id, about, wrong }) => (
              <input
                id={id}
                name="count"
                class="num"
                inputMode="numeric"
                autocomplete="off"
                aria-describedby={about}
                aria-invalid={wrong}
                placeholder="1"
                value={value.count === undefined ? "" : String(value.count)}
                onInput={(event) => onChange({ count: parseNumber(event.currentTarget.value) })}
              />
            )}
          </LabeledField>
          {picked === "file" && (
            <FileField
              label="file of items"
              hint="An artifact with one file of JSON lines, one line per run"
              value={value.items_artifact}
              error={errors.items_artifact}
              artifacts={artifacts}
              onChange={(chosen) => onChange({ items_artifact: chosen })}
            />
          )}
        </div>
      )}
    </div>
  );
}

/** Parse an integer; invalid text is sent unchanged, so that the API reports the error. */
function parseNumber(text: string): unknown {
  const plain = text.trim();
  return plain === "" ? undefined : /^\d{1,15}$/.test(plain) ? Number(plain) : plain;
}

interface FileFieldProps {
  label: string;
  hint: string;
  value: unknown;
  error: string | undefined;
  artifacts: readonly Artifact[];
  onChange: (value: string | undefined) => void;
}

function FileField({ label, hint, value, error, artifacts, onChange }: FileFieldProps) {
  const artifactId = typeof value === "string" ? value : "";
  const known = artifacts.some((each) => each.artifact_id === artifactId);
  return (
    <LabeledField label={label} hint={hint} error={error}>
      {({ id, about, wrong }) => (
        <select
          id={id}
          aria-describedby={about}
          aria-invalid={wrong}
          value={artifactId}
          onChange={(event) => onChange(event.currentTarget.value || undefined)}
        >
          <option value="">none</option>
          {artifactId && !known && <option value={artifactId}>{artifactId}</option>}
          {artifacts.map((each) => (
            <option key={each.artifact_id} value={each.artifact_id}>
              {describeArtifact(each)}
            </option>
          ))}
        </select>
      )}
    </LabeledField>
  );
}

function EnvironmentField({
  value,
  error,
  onChange,
}: {
  value: unknown;
  error: string | undefined;
  onChange: (v: unknown) => void;
}) {
  return (
    <TextArea
      name="env"
      label="environment"
      rows={3}
      placeholder="OMP_NUM_THREADS=4"
      hint="NAME=value, one per line. For passwords, enter names of secrets below."
      error={error}
      text={formatEnvironment(value)}
      read={parseEnvironment}
      onChange={onChange}
    />
  );
}
