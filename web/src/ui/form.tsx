/** A form from a kind's JSON Schema, with the most important fields first. */

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import {
  removeUnset,
  validateField,
  createFields,
  describeBounds,
  parseField,
  formatField,
  type Field,
  type Schema,
} from "./fields";

export type Values = Readonly<Record<string, unknown>>;

interface FormProps {
  schema: Schema;
  value: Values;
  onChange: (value: Record<string, unknown>) => void;
  /** Names of the first fields; if absent, all fields are shown. */
  mainFields?: readonly string[];
  /** The API's error messages by path, such as "cores" or "spawn.mean". */
  errors?: Readonly<Record<string, string>>;
}

/** Body of a form; the caller provides the form element and its button. */
export function SchemaForm({ schema, value, onChange, mainFields, errors = {} }: FormProps) {
  const all = createFields(schema);
  const first = mainFields
    ? mainFields.map((name) => all.find((field) => field.name === name)).filter((field) => field !== undefined)
    : all;
  const rest = all.filter((field) => !first.includes(field));
  const used = rest.filter((field) => value[field.name] !== undefined || findError(errors, field.name)).length;
  const show = (list: readonly Field[]) => (
    <FieldList fields={list} value={value} onChange={onChange} errors={errors} path="" />
  );
  return (
    <div class="stack">
      {show(first)}
      {rest.length > 0 && (
        <details open={used > 0}>
          <summary>
            More parameters ({rest.length}
            {used > 0 && `, ${used} set`})
          </summary>
          {show(rest)}
        </details>
      )}
    </div>
  );
}

function findError(errors: Readonly<Record<string, string>>, path: string): string | undefined {
  const entry = Object.entries(errors).find(([name]) => name === path || name.startsWith(`${path}.`));
  return entry?.[1];
}

interface ListProps {
  fields: readonly Field[];
  value: Values;
  onChange: (value: Record<string, unknown>) => void;
  errors: Readonly<Record<string, string>>;
  path: string;
}

function FieldList({ fields: list, value, onChange, errors, path }: ListProps) {
  const set = (name: string, each: unknown) => onChange(removeUnset({ ...value, [name]: each }));
  return (
    <div class="fields">
      {list.map((field) => (
        <FieldInput
          key={field.name}
          field={field}
          value={value[field.name]}
          errors={errors}
          path={path + field.name}
          onChange={(each) => set(field.name, each)}
        />
      ))}
    </div>
  );
}

interface InputProps {
  field: Field;
  value: unknown;
  onChange: (value: unknown) => void;
  errors: Readonly<Record<string, string>>;
  path: string;
}

function FieldInput(props: InputProps) {
  switch (props.field.kind) {
    case "object":
    case "union":
      return <FieldGroup {...props} />;
    case "choice":
      return <Choice {...props} />;
    case "boolean":
      return <Switch {...props} />;
    default:
      return props.field.kind === "list" && props.field.item?.kind === "choice" ? (
        <Choices {...props} />
      ) : (
        <Text {...props} />
      );
  }
}

function hint(field: Field): string {
  return [field.description.replace(/\.$/, ""), describeBounds(field)].filter(Boolean).join("; ");
}

/** A labelled input with its hint and error message. */
function LabeledField({
  field,
  error,
  children,
}: {
  field: Field;
  error: string | undefined;
  children: (ids: { id: string; about: string }) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{field.label}</label>
      {children({ id, about: `${id}-hint` })}
      <p id={`${id}-hint`} class="small">
        {error && (
          <span class="error">
            {error}
            <br />
          </span>
        )}
        <span class="hint">{hint(field)}</span>
      </p>
    </div>
  );
}

function Text({ field, value, onChange, errors, path }: InputProps) {
  // Keep the typed text while it represents the same value.
  const [typed, setTyped] = useState(formatField(field, value));
  const same = JSON.stringify(parseField(field, typed)) === JSON.stringify(value);
  const wrong = findError(errors, path) ?? validateField(field, value);
  const wide = field.kind === "json";
  return (
    <LabeledField field={field} error={wrong}>
      {({ id, about }) => (
        <input
          id={id}
          aria-describedby={about}
          aria-invalid={wrong ? "true" : undefined}
          spellcheck={false}
          autocomplete="off"
          name={path}
          inputMode={field.kind === "number" ? "decimal" : undefined}
          class={wide ? "mono" : "num"}
          value={same ? typed : formatField(field, value)}
          placeholder={formatField(field, field.default)}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            onChange(parseField(field, event.currentTarget.value));
          }}
        />
      )}
    </LabeledField>
  );
}

function Choice({ field, value, onChange, errors, path }: InputProps) {
  const wrong = findError(errors, path);
  const usual = field.default === null ? "" : String(field.default);
  return (
    <LabeledField field={field} error={wrong}>
      {({ id, about }) => (
        <select
          id={id}
          name={path}
          aria-describedby={about}
          aria-invalid={wrong ? "true" : undefined}
          value={value === undefined ? usual : String(value)}
          onChange={(event) => onChange(event.currentTarget.value === usual ? undefined : event.currentTarget.value)}
        >
          {usual === "" && <option value="">not set</option>}
          {field.options?.map((option) => (
            <option value={option} key={option}>
              {option}
            </option>
          ))}
        </select>
      )}
    </LabeledField>
  );
}

function Switch({ field, value, onChange, errors, path }: InputProps) {
  const id = useId();
  const wrong = findError(errors, path);
  return (
    <div class="field check">
      <input
        type="checkbox"
        id={id}
        name={path}
        checked={Boolean(value ?? field.default)}
        aria-describedby={`${id}-hint`}
        onChange={(event) =>
          onChange(event.currentTarget.checked === Boolean(field.default) ? undefined : event.currentTarget.checked)
        }
      />
      <label for={id}>{field.label}</label>
      {wrong && <span class="error">{wrong}</span>}
      <span class="hint" id={`${id}-hint`}>
        {field.description}
      </span>
    </div>
  );
}

function Choices({ field, value, onChange, errors, path }: InputProps) {
  const listed = value ?? field.default;
  const values = (Array.isArray(listed) ? listed : [listed]).map(String);
  // Show an empty selection and reject it; inserting the default would look like a lost click.
  const none = value !== undefined && !values.length;
  const wrong = findError(errors, path) ?? (none ? "choose at least one" : undefined);
  const toggle = (option: string, on: boolean) => {
    const next = (field.item?.options ?? []).filter((each) => (each === option ? on : values.includes(each)));
    const usual = next.length === 1 && next[0] === field.default;
    onChange(usual ? undefined : field.acceptsSingle && next.length === 1 ? next[0] : next);
  };
  return (
    <div class="field" role="group" aria-label={field.label}>
      <span class="label">{field.label}</span>
      <div class="row">
        {field.item?.options?.map((option) => (
          <label class="row" key={option}>
            <input
              type="checkbox"
              checked={values.includes(option)}
              onChange={(event) => toggle(option, event.currentTarget.checked)}
            />
            {option}
          </label>
        ))}
      </div>
      <p class="small">
        {wrong && <span class="error">{wrong} </span>}
        <span class="hint">{field.description}</span>
      </p>
    </div>
  );
}

/** A group of fields; for a union, with a choice of variants. */
function FieldGroup({ field, value, onChange, errors, path }: InputProps) {
  const id = useId();
  const by = field.discriminator ?? "";
  const usual = (field.default ?? {}) as Record<string, unknown>;
  const present = (value ?? (field.default === null ? undefined : usual)) as Record<string, unknown> | undefined;
  const variant = field.variants?.find((each) => each.name === present?.[by]);
  const inner = field.kind === "union" ? (variant?.fields ?? []) : (field.fields ?? []);
  const required = field.kind === "union" ? { [by]: variant?.name } : {};
  const pick = (name: string) => onChange(name === usual[by] ? undefined : name === "" ? undefined : { [by]: name });
  const offered = field.kind === "union" || present === undefined;
  return (
    <fieldset>
      <legend>{field.label}</legend>
      <p class="hint small soft">{field.description}</p>
      {field.kind === "union" && (
        <div class="field">
          <label for={id}>{by}</label>
          <select
            id={id}
            name={`${path}.${by}`}
            value={variant?.name ?? ""}
            onChange={(event) => pick(event.currentTarget.value)}
          >
            {!variant && <option value="">not set</option>}
            {field.variants?.map((each) => (
              <option value={each.name} key={each.name}>
                {each.name}
              </option>
            ))}
          </select>
        </div>
      )}
      {field.kind === "object" && field.default === null && (
        <label class="row">
          <input
            type="checkbox"
            checked={value !== undefined}
            onChange={(event) => onChange(event.currentTarget.checked ? {} : undefined)}
          />
          give {field.label}
        </label>
      )}
      {(!offered || variant) && (
        <FieldList
          key={variant?.name}
          fields={inner}
          value={present ?? {}}
          errors={errors}
          path={`${path}.`}
          onChange={(next) => onChange({ ...required, ...next })}
        />
      )}
    </fieldset>
  );
}
