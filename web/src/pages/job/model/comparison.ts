/** Rows of a comparison of jobs. Pure functions. */

import { KINDS } from "../../../kinds";
import type { Job } from "../../../lib/api";
import { formatInteger, formatSeconds } from "../../../lib/format";
import { typedParameters } from "../../../lib/summary";
import { convertResult, formatCell } from "./result-view";
import { formatValue } from "./units";
import { formatNumber, summarizeColumn, type ValueTable } from "./values";

export interface ComparedJob {
  job: Job;
  /** Result of a finished job whose units run no programs. */
  result: unknown;
  /** Values of the units of a program. */
  values: ValueTable | undefined;
}

export interface ComparisonRow {
  name: string;
  cells: string[];
  /** True if all jobs have the same value. */
  isEqual: boolean;
}

function describeJob({ job }: ComparedJob): [string, string][] {
  return [
    ["state", job.state],
    ["ran", job.seconds === null ? "" : formatSeconds(job.seconds)],
    ["units", `${formatInteger(job.done)} of ${formatInteger(job.total)}`],
    ["lane time", formatSeconds(job.usage.lane_seconds)],
  ];
}

function describeParameters({ job }: ComparedJob): [string, string][] {
  return Object.entries(typedParameters(job.type, job.parameters)).map(([name, value]) => [name, formatValue(value)]);
}

function describeResult({ job, result, values }: ComparedJob): [string, string][] {
  const { figures } = convertResult(result ?? {}, KINDS[job.type]?.resultValues);
  const means = [...(values?.columns ?? [])].flatMap(([name, column]): [string, string][] => {
    const summary = summarizeColumn(column);
    return summary ? [[`mean ${name}`, formatNumber(summary.mean)]] : [];
  });
  return [...figures.map(([name, cell]): [string, string] => [name, String(formatCell(cell))]), ...means];
}

/** Return the rows of a part, in the order of their first occurrence. */
function createRows(parts: readonly [string, string][][]): ComparisonRow[] {
  const names = [...new Set(parts.flatMap((part) => part.map(([name]) => name)))];
  return names.map((name) => {
    const cells = parts.map((part) => part.find(([other]) => other === name)?.[1] ?? "");
    return { name, cells, isEqual: cells.every((cell) => cell === cells[0]) };
  });
}

/** Return rows for states and durations, for parameters that differ, and for results. */
export function compareJobs(jobs: readonly ComparedJob[]): ComparisonRow[] {
  return [
    ...createRows(jobs.map(describeJob)),
    ...createRows(jobs.map(describeParameters)).filter((row) => !row.isEqual),
    ...createRows(jobs.map(describeResult)),
  ];
}
