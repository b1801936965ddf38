/** JSON as an expandable outline with grouped digits; long lists are cut and counted. */

import { formatCount, formatInteger } from "../lib/format";

/** Maximum number of displayed list items; the file contains all. */
const MOST_ITEMS = 30;
/** Maximum number of fields of objects that are open at first; nested ones close sooner. */
const MOST_OPEN = 8;
const MOST_OPEN_DEEPER = 3;
/** Fields that repeat the request, shown last and closed. */
const ASKED = ["type", "model_version", "parameters"];

export function leaf(value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "number") return Number.isInteger(value) ? formatInteger(value) : String(value);
  if (typeof value === "string" && /^-?\d{5,}$/.test(value)) return formatInteger(value);
  return String(value);
}

function flat(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.every((each) => typeof each !== "object" || each === null);
}

function List({ items }: { items: readonly unknown[] }) {
  const rest = items.length - MOST_ITEMS;
  return (
    <span class="num values">
      {items.slice(0, MOST_ITEMS).map(leaf).join(", ") || "empty"}
      {rest > 0 && <span class="soft"> and {formatInteger(rest)} more</span>}
    </span>
  );
}

function Branch({ name, value, depth }: { name: string; value: unknown; depth: number }) {
  if (flat(value))
    return (
      <li>
        <span class="name">{name}</span> <List items={value} />
      </li>
    );
  if (typeof value !== "object" || value === null)
    return (
      <li>
        <span class="name">{name}</span> <span class="num values">{leaf(value)}</span>
      </li>
    );
  const entries = Object.entries(value);
  const list = Array.isArray(value);
  const rest = list ? entries.length - MOST_ITEMS : 0;
  return (
    <li>
      <details open={!list && entries.length <= (depth ? MOST_OPEN_DEEPER : MOST_OPEN) && !ASKED.includes(name)}>
        <summary>
          {name}{" "}
          <span class="soft small">
            {list ? formatCount(entries.length, "item") : formatCount(entries.length, "field")}
          </span>
        </summary>
        <ul>
          {entries.slice(0, list ? MOST_ITEMS : undefined).map(([each, inner]) => (
            <Branch key={each} name={each} value={inner} depth={depth + 1} />
          ))}
          {rest > 0 && <li class="soft">and {formatInteger(rest)} more in the file</li>}
        </ul>
      </details>
    </li>
  );
}

export function Outline({ value, label }: { value: unknown; label: string }) {
  if (typeof value !== "object" || value === null) return <p class="num">{leaf(value)}</p>;
  const late = (name: string) => (ASKED.includes(name) ? 1 : 0);
  const entries = Object.entries(value)
    .filter(([, each]) => each !== null)
    .sort(([left], [right]) => late(left) - late(right));
  if (!entries.length) return <p class="soft">All parameters have their defaults.</p>;
  return (
    <ul class="tree" aria-label={label}>
      {entries.map(([name, each]) => (
        <Branch key={name} name={name} value={each} depth={0} />
      ))}
    </ul>
  );
}
