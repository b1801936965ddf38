/** Groups of failed units with the same error. Pure functions. */

import type { Unit } from "../../../lib/api";
import { describeExit } from "./units";

export interface FailureGroup {
  /** Error of the group's first unit. */
  error: string;
  /** Unit numbers, ascending. */
  units: number[];
}

/** Return the last line of an error, which names the exception in most languages, without the exit code. */
function lastLine(text: string): string {
  const line = text.trim().split("\n").at(-1)?.trim() ?? "";
  return line.replace(/^exit code -?\d+(?:: |$)/, "");
}

/** Return an error without the parts that differ between units: numbers, hexadecimal IDs and paths. */
export function normalizeError(text: string): string {
  return text
    .replace(/\b0x[0-9a-f]+\b|\b[0-9a-f]{8,}\b/gi, "#")
    .replace(/(?:\/[\w.-]+)+/g, "#")
    .replace(/\d+(?:\.\d+)?(?:e[+-]?\d+)?/gi, "#");
}

/** Group failed units by their exit codes and errors, most frequent first. */
export function groupFailures(units: readonly Unit[]): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const unit of units) {
    const exit = describeExit(unit);
    const line = lastLine(unit.error ?? "");
    const error = [exit, line].filter(Boolean).join(": ");
    const key = `${exit} ${normalizeError(line)}`;
    const group = groups.get(key) ?? { error, units: [] };
    group.units.push(unit.unit);
    groups.set(key, group);
  }
  return [...groups.values()].sort((left, right) => right.units.length - left.units.length);
}
