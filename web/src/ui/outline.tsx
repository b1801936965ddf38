/** JSON as an expandable outline with grouped digits; long lists are cut and counted. */

import { formatCount, formatInteger } from "../lib/format";

/** Maximum number of displayed list items; the file contains all. */
const MAX_ITEMS = 30;
/** Maximum number of fields of objects that are open at first; nested ones close sooner. */
const MAX_OPEN_FIELDS = 8;
const MAX_OPEN_FIELDS_DEEPER = 3;
/** Fields that repeat the request, shown last and closed. */
const REQUEST_FIELDS = ["type", "model_version", "parameters"];

export function formatLeaf(value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "number") return Number.isInteger(value) ? formatInteger(value) : String(value);
  if (typeof value === "string" && /^-?\d{5,}$/.test(value)) return formatInteger(value);
  return String(value);
}

function isFlat(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.every((each) => typeof each !== "object" || each === null);
}

function List({ items }: { items: readonly unknown[] }) {
  const rest = items.length - MAX_ITEMS;
  return (
    <span class="num values">
      {items.slice(0, MAX_ITEMS).map(formatLeaf).join(", ") || "empty"}
      {rest > 0 && <span class="soft"> and {formatInteger(rest)} more</span>}
    </span>
  );
}

function Branch({ name, value, depth }: { name: string; value: unknown; depth: number }) {
  if (isFlat(value))
    return (
      <li>
        <span class="name">{name}</span> <List items={value} />
      </li>
    );
  if (typeof value !== "object" || value === null)
    return (
      <li>
        <span class="name">{name}</span> <span class="num values">{formatLeaf(value)}</span>
      </li>
    );
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  const rest = isList ? entries.length - MAX_ITEMS : 0;
  return (
    <li>
      <details
        open={
          !isList &&
          entries.length <= (depth ? MAX_OPEN_FIELDS_DEEPER : MAX_OPEN_FIELDS) &&
          !REQUEST_FIELDS.includes(name)
        }
      >
        <summary>
          {name}{" "}
          <span class="soft small">
            {isList ? formatCount(entries.length, "item") : formatCount(entries.length, "field")}
          </span>
        </summary>
        <ul>
          {entries.slice(0, isList ? MAX_ITEMS : undefined).map(([each, inner]) => (
            <Branch key={each} name={each} value={inner} depth={depth + 1} />
          ))}
          {rest > 0 && <li class="soft">and {formatInteger(rest)} more in the file</li>}
        </ul>
      </details>
    </li>
  );
}

export function Outline({ value, label }: { value: unknown; label: string }) {
  if (typeof value !== "object" || value === null) return <p class="num">{formatLeaf(value)}</p>;
  const sortKey = (name: string) => (REQUEST_FIELDS.includes(name) ? 1 : 0);
  const entries = Object.entries(value)
    .filter(([, each]) => each !== null)
    .sort(([left], [right]) => sortKey(left) - sortKey(right));
  if (!entries.length) return <p class="soft">All parameters have their defaults.</p>;
  return (
    <ul class="tree" aria-label={label}>
      {entries.map(([name, each]) => (
        <Branch key={name} name={name} value={each} depth={0} />
      ))}
    </ul>
  );
}
