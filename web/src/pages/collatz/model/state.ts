/** State of the Collatz page, stored in its URL. */

import { computed, signal } from "@preact/signals";
import { parsePositive } from "./number";
import { STRATEGIES, type Strategy } from "./strategies";
import { clampView, visibleRange, type Range, type View, fullView } from "./view";
import { createHashState } from "../../../lib/hash";

export const TABS = ["graph", "histogram", "residues", "tree", "coral", "log", "frontier"] as const;
export type TabName = (typeof TABS)[number];
export const COLOR_MODES = ["count", "peak", "residue"] as const;

/** Maximum number of compared trajectories. */
export const MAX_PATHS = 8;
/** Upper limit of the kind's ranges, and its longest range. */
const RANGE_LIMIT = 2n ** 96n;
const MAX_RANGE_SIZE = 2n ** 53n - 2n ** 33n;

export const state = createHashState({
  v: 1,
  view: "graph",
  job: "",
  frontier: "",
  from: "1",
  to: "10^6",
  strategy: "sequential",
  size: 65_536,
  windows: 16,
  parallel: 2,
  seed: 1,
  x: "",
  span: 0,
  sel: "",
  log: false,
  colour: "count",
  mod: 8,
  n: "27",
  with: [] as readonly string[],
  tails: false,
  step: 0,
  steps: "",
  speed: 500,
  terms: false,
  logcounts: false,
  root: "1",
  depth: 12,
  rows: false,
  prune: false,
  open: [] as readonly string[],
  node: "",
  numbers: 8000,
  even: 8.65,
  odd: 16.2,
  palette: "viridis",
  find: "",
  length: "",
  stars: false,
  follow: true,
});

export const tab = computed<TabName>(() => TABS.find((each) => each === state.view.value) ?? "graph");
export const strategy = computed<Strategy>(
  () => STRATEGIES.find((each) => each === state.strategy.value) ?? "sequential",
);
export const metric = computed(() => COLOR_MODES.find((each) => each === state.colour.value) ?? "count");

export function showView(name: TabName): void {
  state.view.value = name;
  state.commit();
}

// -- the range ------------------------------------------------------------------------------------------------------

interface RequestedRange {
  range: Range;
  /** True if no end was given, so the range extends to the kind's limit. */
  isUnbounded: boolean;
  errors: { from?: string; to?: string };
}

function isEndless(text: string): boolean {
  return /^\s*(0|inf|infinity|∞)?\s*$/i.test(text);
}

/** The range in the form; invalid values are reported and replaced. */
export const requestedRange = computed<RequestedRange>(() => {
  const from = parsePositive(state.from.value);
  const first = from.value !== undefined && from.value < RANGE_LIMIT ? from.value : 1n;
  const why: RequestedRange["errors"] = {};
  if (from.value === undefined) why.from = from.error;
  else if (from.value >= RANGE_LIMIT) why.from = "must be below 2^96: larger numbers have their trajectories below";
  const max = first + MAX_RANGE_SIZE < RANGE_LIMIT ? first + MAX_RANGE_SIZE : RANGE_LIMIT;
  if (isEndless(state.to.value)) return { range: { first, end: max }, isUnbounded: true, errors: why };
  const to = parsePositive(state.to.value);
  if (to.value === undefined) why.to = to.error;
  else if (to.value < first) why.to = "must not be below the first number";
  else if (to.value >= max)
    why.to = first + MAX_RANGE_SIZE < RANGE_LIMIT ? "at most 2^53 - 2^33 numbers at a time" : "must be below 2^96";
  const end =
    to.value !== undefined && !why.to
      ? to.value + 1n
      : first + 1_000_000n < RANGE_LIMIT
        ? first + 1_000_000n
        : RANGE_LIMIT;
  return { range: { first, end }, isUnbounded: false, errors: why };
});

export const range = computed(() => requestedRange.value.range);
/** Number of values in the range. */
export const rangeSize = computed(() => range.value.end - range.value.first);
/** Range that the view can show. */
export const limits: Range = { first: 1n, end: RANGE_LIMIT };

// -- the view -------------------------------------------------------------------------------------------------------

/** The visible range of numbers. */
export const view = computed<View>(() => {
  const [left, frac = "0"] = state.x.value.split(".");
  if (!state.span.value || !left || !/^\d{1,30}$/.test(left)) return fullView(range.value);
  return clampView({ base: BigInt(left), frac: Number(`0.${frac}`), span: state.span.value }, limits);
});

export function setView(next: View): void {
  state.x.value = next.frac ? `${next.base}.${next.frac.toFixed(6).slice(2)}` : String(next.base);
  state.span.value = next.span;
}

export function fitView(): void {
  state.x.value = "";
  state.span.value = 0;
}

// -- the selection --------------------------------------------------------------------------------------------------

/** The selected range. */
export const selection = computed<Range | undefined>(() => {
  const [, first, last] = /^(\d{1,30})-(\d{1,30})$/.exec(state.sel.value) ?? [];
  if (!first || !last) return undefined;
  const parsedRange = { first: BigInt(first), end: BigInt(last) + 1n };
  return parsedRange.first >= 1n && parsedRange.first < parsedRange.end && parsedRange.end <= RANGE_LIMIT
    ? parsedRange
    : undefined;
});

/** Return the range to count: the selection, or else the view. */
export function countedRange(): Range {
  return selection.value ?? visibleRange(view.value, limits);
}

export function selectRange(numbers: Range | undefined): void {
  state.sel.value = numbers ? `${numbers.first}-${numbers.end - 1n}` : "";
  state.commit();
}

// -- trajectories ---------------------------------------------------------------------------------------------------

/** The number whose trajectory is shown, or the reason why there is none. */
export const startNumber = computed(() => parsePositive(state.n.value));

/** Incremented when a number is selected, so that its trajectory scrolls into view. */
export const choiceCount = signal(0);

/** Show the trajectory of a number. */
export function showTrajectory(n: bigint | string): void {
  choiceCount.value = choiceCount.peek() + 1;
  state.n.value = String(n);
  state.step.value = 0;
  state.steps.value = "";
  state.commit();
}

/** Add a number to the compared ones, or remove it. */
export function compareNumber(n: string, add = true): void {
  const others = state.with.peek().filter((each) => each !== n);
  state.with.value = add ? [...others, n].slice(-(MAX_PATHS - 1)) : others;
  state.commit();
}

/** Number under the pointer or keyboard focus in the graph. */
export const pointedNumber = signal<bigint | undefined>(undefined);
