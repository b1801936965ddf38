/** The inverse tree: numbers that reach the root, unfolded on demand. */

import { computed, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { layOutAround, predecessors, growTree, findPath, placeBranches, type Branch } from "./model/inverse";
import { LENGTH_CLASSES, lengthClass } from "./model/fit";
import { parsePositive } from "./model/number";
import { nextValue, computeTrajectory } from "./model/trajectory";
import { formatCount, formatInteger } from "../../lib/format";
import { Button } from "../../ui/button";
import { Figure } from "../../ui/figure";
import { ClassMark, SHAPES } from "./classes";
import { CheckboxField, NumberField, IntegerField } from "./fields";
import { showTrajectory, state } from "./model/state";
import { formatShort } from "./trajectory";

/** Maximum number of drawn branches. */
const MAX_BRANCHES = 600;
const MAX_DEPTH = 60;
const ROW_HEIGHT = 18;
/** Margin around the picture for labels. */
const MARGIN = 44;

function toggleValue(value: bigint): void {
  const name = String(value);
  const open = state.open.peek();
  state.open.value = open.includes(name) ? open.filter((each) => each !== name) : [...open, name];
  state.node.value = name;
  state.commit();
}

function selectBranch({ isFolded: folded, value }: Branch): void {
  if (folded) toggleValue(value);
  else {
    state.node.value = String(value);
    state.commit();
  }
}

const root = computed(() => parsePositive(state.root.value).value ?? 1n);
const tree = computed(() =>
  growTree(root.value, {
    depth: Math.max(1, Math.min(MAX_DEPTH, state.depth.value)),
    toggledValues: new Set(state.open.value),
    isPruned: state.prune.value,
    maxBranches: MAX_BRANCHES,
  }),
);
/** Steps from the root to 1, from which those of all branches follow. */
const rootDelay = computed(() => computeTrajectory(root.value).delay);
const branchRows = computed(() => placeBranches(tree.value.root));
/** Path from the selected number to the root. */
const selectedPath = computed(() => findPath(branchRows.value, state.node.value));

interface BranchMarkProps {
  branch: Branch;
  x: number;
  y: number;
  /** Rotation of the label in degrees; labels on the left are reversed. */
  turn?: number;
  hasLabel?: boolean;
}

function BranchMark({ branch, x, y, turn = 0, hasLabel: named = true }: BranchMarkProps) {
  const { value, depth, isFolded: folded } = branch;
  const steps = rootDelay.value + depth;
  const kind = lengthClass(steps);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    selectBranch(branch);
  };
  const name = `${formatInteger(value)}, ${steps} steps${folded ? ", unfold" : ""}`;
  const flipped = Math.abs(turn) > 90;
  return (
    <g
      class={selectedPath.value.has(value) ? "twig lit" : "twig"}
      transform={`translate(${x.toFixed(1)},${y.toFixed(1)})`}
      role="button"
      tabindex={0}
      aria-label={name}
      data-value={String(value)}
      aria-pressed={state.node.value === String(value)}
      onClick={() => selectBranch(branch)}
      onKeyDown={onKey}
    >
      <title>{name}</title>
      <rect class="hit" x="-12" y="-9" width="24" height="18" />
      <g
        fill={folded ? "var(--bg)" : `var(--series-${kind + 1})`}
        stroke={`var(--series-${kind + 1})`}
        stroke-width="2"
      >
        {SHAPES[kind]}
      </g>
      <text
        class={named || selectedPath.value.has(value) ? undefined : "unnamed"}
        x={flipped ? -9 : 9}
        y="4"
        text-anchor={flipped ? "end" : undefined}
        transform={turn ? `rotate(${(flipped ? turn + 180 : turn).toFixed(1)})` : undefined}
      >
        {formatShort(value)}
      </text>
    </g>
  );
}

/** Return the class of the line between a number and its parent. */
function lineClass(value: bigint, from: bigint): string {
  return `link${value === 2n * from ? "" : " odd"}${selectedPath.value.has(value) ? " lit" : ""}`;
}

/** Size of the tree's area. */
const size = signal<[number, number]>([800, 480]);

/** The whole tree around the first branching point. */
function RadialTree() {
  const box = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const watcher = new ResizeObserver(() => (size.value = [element.clientWidth, element.clientHeight]));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const [width, height] = size.value;
  const spots = layOutAround(tree.value.root, Math.max(80, width - 2 * MARGIN), Math.max(80, height - 2 * MARGIN));
  const degrees = (angle: number) => (((((angle * 180) / Math.PI + 540) % 360) + 360) % 360) - 180;
  return (
    <svg ref={box} class="tree-around" viewBox={`${-width / 2} ${-height / 2} ${width} ${height}`}>
      {spots.map(
        ({ branch: { value }, from, x, y }) =>
          from && (
            <path
              key={String(value)}
              class={lineClass(value, from.branch.value)}
              d={`M${from.x.toFixed(1)} ${from.y.toFixed(1)}L${x.toFixed(1)} ${y.toFixed(1)}`}
            />
          ),
      )}
      {spots.map(({ branch, x, y, angle, hasLabel: named }) => (
        <BranchMark key={String(branch.value)} branch={branch} x={x} y={y} turn={degrees(angle)} hasLabel={named} />
      ))}
    </svg>
  );
}

/** One row per leaf in a scrollable list that starts at the root. */
function TreeRows({ label }: { label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const all = branchRows.value;
  const high = ROW_HEIGHT * (1 + Math.max(...all.map(({ row }) => row)));
  const deepest = Math.max(...all.map(({ branch }) => branch.depth));
  const step = Math.max(46, 30 + 7.4 * Math.max(...all.map(({ branch }) => formatShort(branch.value).length)));
  const wide = deepest * step + 24 + step;
  const at = (depth: number) => depth * step + 24;
  useEffect(() => {
    const element = box.current;
    if (element) element.scrollTo(0, (all[0]?.row ?? 0) * ROW_HEIGHT - element.clientHeight / 2);
  }, [root.value, high]);
  return (
    <div class="tree-space" ref={box} tabIndex={0} role="region" aria-label={label}>
      <svg width={wide} height={high} viewBox={`0 ${-ROW_HEIGHT / 2} ${wide} ${high}`}>
        {all.map(
          ({ branch: { value, depth }, row, from }) =>
            from && (
              <path
                key={String(value)}
                class={lineClass(value, from.branch.value)}
                d={
                  `M${at(depth - 1)} ${from.row * ROW_HEIGHT}C${at(depth - 0.5)} ${from.row * ROW_HEIGHT} ` +
                  `${at(depth - 0.5)} ${row * ROW_HEIGHT} ${at(depth)} ${row * ROW_HEIGHT}`
                }
              />
            ),
        )}
        {all.map(({ branch, row }) => (
          <BranchMark key={String(branch.value)} branch={branch} x={at(branch.depth)} y={row * ROW_HEIGHT} />
        ))}
      </svg>
    </div>
  );
}

function GrowthControls({ words, why }: { words: string; why: string | undefined }) {
  return (
    <div class="row">
      <NumberField
        text="root"
        value={state.root.value}
        error={why}
        size={10}
        onChange={(text) => {
          state.root.value = text;
          state.open.value = [];
          state.commit();
        }}
      />
      {why && (
        <span class="small bad" role="status">
          {why}
        </span>
      )}
      <IntegerField name="depth" text="levels" min={1} max={MAX_DEPTH} />
      <CheckboxField name="prune" title="Only doublings lead to multiples of 3, so nothing branches above them">
        stop at multiples of 3
      </CheckboxField>
      <CheckboxField name="rows">in rows</CheckboxField>
      {state.open.value.length > 0 && <Button onClick={() => (state.open.value = [])}>Fold what was unfolded</Button>}
      <span class="small soft">{words}. Hollow: unfold with a click.</span>
    </div>
  );
}

export function TreeView() {
  const { count, isCut: cut } = tree.value;
  const deepest = Math.max(...branchRows.value.map(({ branch }) => branch.depth));
  const words =
    `Inverse tree of ${formatShort(root.value)}: ${formatInteger(count)} number${count === 1 ? "" : "s"}, ${deepest} ` +
    `level${deepest === 1 ? "" : "s"}${cut ? `; at most ${MAX_BRANCHES} are drawn, the rest is folded` : ""}`;
  return (
    <div class="stack">
      <GrowthControls words={words} why={parsePositive(state.root.value).error} />
      <Figure
        summary={`${words}.`}
        getTable={() => ({
          head: ["n", "steps to the root", "comes from"],
          rows: branchRows.value.map(({ branch }) => [
            formatShort(branch.value),
            branch.depth,
            predecessors(branch.value).map(formatShort).join(", "),
          ]),
        })}
      >
        <div class="tree-body">
          {state.rows.value ? <TreeRows label={`${words}.`} /> : <RadialTree />}
          <BranchFacts />
        </div>
      </Figure>
      <ul class="classes small">
        {LENGTH_CLASSES.map(({ name }, index) => (
          <li key={name}>
            <ClassMark index={index} /> {name} steps
          </li>
        ))}
        <li>
          <svg viewBox="0 0 18 8" aria-hidden="true">
            <path d="M0 4h18" class="link" />
          </svg>{" "}
          from 2n
        </li>
        <li>
          <svg viewBox="0 0 18 8" aria-hidden="true">
            <path d="M0 4h18" class="link odd" />
          </svg>{" "}
          from (n − 1) / 3
        </li>
      </ul>
    </div>
  );
}

/** Facts about the selected branch: start, steps, greatest value and first terms. */
function BranchFacts() {
  const value = state.node.value ? parsePositive(state.node.value).value : undefined;
  if (value === undefined)
    return <aside class="node-facts small soft">Choose a number for its steps, peak and first terms.</aside>;
  const walked = computeTrajectory(value);
  const first: bigint[] = [];
  for (let term = value; first.length < 15; term = nextValue(term)) {
    first.push(term);
    if (term === 1n) break;
  }
  return (
    <aside class="node-facts stack" aria-live="polite">
      <h3 class="num">{formatShort(value)}</h3>
      <p class="small num">
        {formatCount(walked.delay, "step")}, {formatInteger(walked.odd)} odd, peak {formatShort(walked.peak)} at{" "}
        {`step ${formatInteger(walked.peakStep)}`}
      </p>
      <p class="small num">
        {first.map(formatShort).join(" → ")}
        {walked.delay >= 15 ? " → …" : ""}
      </p>
      <div class="row">
        <Button
          onClick={() => {
            state.root.value = state.node.value;
            state.open.value = [];
            state.commit();
          }}
        >
          Make it the root
        </Button>
        <Button onClick={() => toggleValue(value)}>Fold or unfold</Button>
        <Button onClick={() => showTrajectory(value)}>Trajectory</Button>
      </div>
    </aside>
  );
}
