/** The inverse tree: numbers that reach the root, unfolded on demand. */

import { computed, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { around, before, grow, pathOf, placed, type Branch } from "./model/inverse";
import { CLASSES, classOf } from "./model/fit";
import { positive } from "./model/number";
import { next, walk } from "./model/walk";
import { formatCount, formatInteger } from "../../lib/format";
import { Button } from "../../ui/button";
import { Figure } from "../../ui/figure";
import { ClassMark, SHAPES } from "./classes";
import { Check, Numeral, Whole } from "./fields";
import { choose, state } from "./model/state";
import { short } from "./trajectory";

/** Maximum number of drawn branches. */
const MOST = 600;
const MOST_DEPTH = 60;
const ROW = 18;
/** Margin around the picture for labels. */
const MARGIN = 44;

function toggle(value: bigint): void {
  const name = String(value);
  const open = state.open.peek();
  state.open.value = open.includes(name) ? open.filter((each) => each !== name) : [...open, name];
  state.node.value = name;
  state.commit();
}

function pick({ folded, value }: Branch): void {
  if (folded) toggle(value);
  else {
    state.node.value = String(value);
    state.commit();
  }
}

const root = computed(() => positive(state.root.value).value ?? 1n);
const grown = computed(() =>
  grow(root.value, {
    depth: Math.max(1, Math.min(MOST_DEPTH, state.depth.value)),
    toggled: new Set(state.open.value),
    prune: state.prune.value,
    most: MOST,
  }),
);
/** Steps from the root to 1, from which those of all branches follow. */
const rootDelay = computed(() => walk(root.value).delay);
const places = computed(() => placed(grown.value.root));
/** Path from the selected number to the root. */
const lit = computed(() => pathOf(places.value, state.node.value));

interface TwigProps {
  branch: Branch;
  x: number;
  y: number;
  /** Rotation of the label in degrees; labels on the left are reversed. */
  turn?: number;
  named?: boolean;
}

function Twig({ branch, x, y, turn = 0, named = true }: TwigProps) {
  const { value, depth, folded } = branch;
  const steps = rootDelay.value + depth;
  const kind = classOf(steps);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    pick(branch);
  };
  const name = `${formatInteger(value)}, ${steps} steps${folded ? ", unfold" : ""}`;
  const flipped = Math.abs(turn) > 90;
  return (
    <g
      class={lit.value.has(value) ? "twig lit" : "twig"}
      transform={`translate(${x.toFixed(1)},${y.toFixed(1)})`}
      role="button"
      tabindex={0}
      aria-label={name}
      data-value={String(value)}
      aria-pressed={state.node.value === String(value)}
      onClick={() => pick(branch)}
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
        class={named || lit.value.has(value) ? undefined : "unnamed"}
        x={flipped ? -9 : 9}
        y="4"
        text-anchor={flipped ? "end" : undefined}
        transform={turn ? `rotate(${(flipped ? turn + 180 : turn).toFixed(1)})` : undefined}
      >
        {short(value)}
      </text>
    </g>
  );
}

/** Return the class of the line between a number and its parent. */
function lineOf(value: bigint, from: bigint): string {
  return `link${value === 2n * from ? "" : " odd"}${lit.value.has(value) ? " lit" : ""}`;
}

/** Size of the tree's area. */
const size = signal<[number, number]>([800, 480]);

/** The whole tree around the first branching point. */
function Around() {
  const box = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const watcher = new ResizeObserver(() => (size.value = [element.clientWidth, element.clientHeight]));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const [width, height] = size.value;
  const spots = around(grown.value.root, Math.max(80, width - 2 * MARGIN), Math.max(80, height - 2 * MARGIN));
  const degrees = (angle: number) => (((((angle * 180) / Math.PI + 540) % 360) + 360) % 360) - 180;
  return (
    <svg ref={box} class="tree-around" viewBox={`${-width / 2} ${-height / 2} ${width} ${height}`}>
      {spots.map(
        ({ branch: { value }, from, x, y }) =>
          from && (
            <path
              key={String(value)}
              class={lineOf(value, from.branch.value)}
              d={`M${from.x.toFixed(1)} ${from.y.toFixed(1)}L${x.toFixed(1)} ${y.toFixed(1)}`}
            />
          ),
      )}
      {spots.map(({ branch, x, y, angle, named }) => (
        <Twig key={String(branch.value)} branch={branch} x={x} y={y} turn={degrees(angle)} named={named} />
      ))}
    </svg>
  );
}

/** One row per leaf in a scrollable list that starts at the root. */
function Rows({ label }: { label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const all = places.value;
  const high = ROW * (1 + Math.max(...all.map(({ row }) => row)));
  const deepest = Math.max(...all.map(({ branch }) => branch.depth));
  const step = Math.max(46, 30 + 7.4 * Math.max(...all.map(({ branch }) => short(branch.value).length)));
  const wide = deepest * step + 24 + step;
  const at = (depth: number) => depth * step + 24;
  useEffect(() => {
    const element = box.current;
    if (element) element.scrollTo(0, (all[0]?.row ?? 0) * ROW - element.clientHeight / 2);
  }, [root.value, high]);
  return (
    <div class="tree-space" ref={box} tabIndex={0} role="region" aria-label={label}>
      <svg width={wide} height={high} viewBox={`0 ${-ROW / 2} ${wide} ${high}`}>
        {all.map(
          ({ branch: { value, depth }, row, from }) =>
            from && (
              <path
                key={String(value)}
                class={lineOf(value, from.branch.value)}
                d={
                  `M${at(depth - 1)} ${from.row * ROW}C${at(depth - 0.5)} ${from.row * ROW} ` +
                  `${at(depth - 0.5)} ${row * ROW} ${at(depth)} ${row * ROW}`
                }
              />
            ),
        )}
        {all.map(({ branch, row }) => (
          <Twig key={String(branch.value)} branch={branch} x={at(branch.depth)} y={row * ROW} />
        ))}
      </svg>
    </div>
  );
}

function Growth({ words, why }: { words: string; why: string | undefined }) {
  return (
    <div class="row">
      <Numeral
        text="root"
        value={state.root.value}
        why={why}
        size={10}
        set={(text) => {
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
      <Whole name="depth" text="levels" least={1} most={MOST_DEPTH} />
      <Check name="prune" title="Only doublings lead to multiples of 3, so nothing branches above them">
        stop at multiples of 3
      </Check>
      <Check name="rows">in rows</Check>
      {state.open.value.length > 0 && <Button onClick={() => (state.open.value = [])}>Fold what was unfolded</Button>}
      <span class="small soft">{words}. Hollow: unfold with a click.</span>
    </div>
  );
}

export function TreeView() {
  const { count, cut } = grown.value;
  const deepest = Math.max(...places.value.map(({ branch }) => branch.depth));
  const words =
    `Inverse tree of ${short(root.value)}: ${formatInteger(count)} number${count === 1 ? "" : "s"}, ${deepest} ` +
    `level${deepest === 1 ? "" : "s"}${cut ? `; at most ${MOST} are drawn, the rest is folded` : ""}`;
  return (
    <div class="stack">
      <Growth words={words} why={positive(state.root.value).why} />
      <Figure
        summary={`${words}.`}
        getTable={() => ({
          head: ["n", "steps to the root", "comes from"],
          rows: places.value.map(({ branch }) => [
            short(branch.value),
            branch.depth,
            before(branch.value).map(short).join(", "),
          ]),
        })}
      >
        <div class="tree-body">
          {state.rows.value ? <Rows label={`${words}.`} /> : <Around />}
          <BranchFacts />
        </div>
      </Figure>
      <ul class="classes small">
        {CLASSES.map(({ name }, place) => (
          <li key={name}>
            <ClassMark place={place} /> {name} steps
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
  const value = state.node.value ? positive(state.node.value).value : undefined;
  if (value === undefined)
    return <aside class="node-facts small soft">Choose a number for its steps, peak and first terms.</aside>;
  const walked = walk(value);
  const first: bigint[] = [];
  for (let term = value; first.length < 15; term = next(term)) {
    first.push(term);
    if (term === 1n) break;
  }
  return (
    <aside class="node-facts stack" aria-live="polite">
      <h3 class="num">{short(value)}</h3>
      <p class="small num">
        {formatCount(walked.delay, "step")}, {formatInteger(walked.odd)} odd, peak {short(walked.peak)} at step{" "}
        {formatInteger(walked.peakStep)}
      </p>
      <p class="small num">
        {first.map(short).join(" → ")}
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
        <Button onClick={() => toggle(value)}>Fold or unfold</Button>
        <Button onClick={() => choose(value)}>Trajectory</Button>
      </div>
    </aside>
  );
}
