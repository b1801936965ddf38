/** The inverse tree: every number that comes to the root, unfolded on demand. */

import { before, grow, placed, type Branch } from "./model/inverse";
import { CLASSES, classOf } from "./model/fit";
import { positive } from "./model/number";
import { next, walk } from "./model/walk";
import { integer } from "../../lib/format";
import { Figure } from "../../ui/figure";
import { ClassMark, SHAPES } from "./classes";
import { Check, Numeral, Whole } from "./fields";
import { choose, state } from "./model/state";
import { short } from "./trajectory";

/** Branches that are drawn at most. */
const MOST = 600;
const MOST_DEPTH = 60;
const ROW = 18;

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

/** Steps to 1 of the root, which those of every branch follow from. */
function rootDelay(root: bigint): number {
  return walk(root).delay;
}

function Twig({ branch, y, delay, step }: { branch: Branch; y: number; delay: number; step: number }) {
  const { value, depth, folded } = branch;
  const steps = delay + depth;
  const kind = classOf(steps);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    pick(branch);
  };
  const name = `${integer(value)}, ${steps} steps${folded ? ", unfold" : ""}`;
  return (
    <g
      class="twig"
      transform={`translate(${depth * step + 24},${y})`}
      role="button"
      tabindex={0}
      aria-label={name}
      data-value={String(value)}
      aria-pressed={state.node.value === String(value)}
      onClick={() => pick(branch)}
      onKeyDown={onKey}
    >
      <rect class="hit" x="-12" y="-9" width="24" height="18" />
      <g
        fill={folded ? "var(--bg)" : `var(--series-${kind + 1})`}
        stroke={`var(--series-${kind + 1})`}
        stroke-width="2"
      >
        {SHAPES[kind]}
      </g>
      <text x="9" y="4">
        {short(value)}
      </text>
    </g>
  );
}

export function TreeView() {
  const typed = positive(state.root.value);
  const root = typed.value ?? 1n;
  const depth = Math.max(1, Math.min(MOST_DEPTH, state.depth.value));
  const grown = grow(root, { depth, toggled: new Set(state.open.value), prune: state.prune.value, most: MOST });
  const nodes = placed(grown.root);
  const high = ROW * (1 + Math.max(...nodes.map(({ row }) => row)));
  const deepest = Math.max(...nodes.map(({ branch }) => branch.depth));
  const step = Math.max(46, 30 + 7.4 * Math.max(...nodes.map(({ branch }) => short(branch.value).length)));
  const wide = deepest * step + 24 + step;
  const at = (depth: number) => depth * step + 24;
  const delay = rootDelay(root);
  const words =
    `Inverse tree of ${short(root)}: ${integer(grown.count)} numbers, ${deepest} ` +
    `levels${grown.cut ? `; at most ${MOST} are drawn, the rest is folded` : ""}`;
  return (
    <div class="stack">
      <div class="row">
        <Numeral
          text="root"
          value={state.root.value}
          why={typed.why}
          size={10}
          set={(text) => {
            state.root.value = text;
            state.open.value = [];
            state.commit();
          }}
        />
        {typed.why && (
          <span class="small bad" role="status">
            {typed.why}
          </span>
        )}
        <Whole name="depth" text="levels" least={1} most={MOST_DEPTH} />
        <Check name="prune" title="Only doublings lead to multiples of 3, so nothing branches above them">
          stop at multiples of 3
        </Check>
        {state.open.value.length > 0 && (
          <button type="button" onClick={() => (state.open.value = [])}>
            Fold what was unfolded
          </button>
        )}
        <span class="small soft">{words}. Hollow: unfold with a click.</span>
      </div>
      <Figure
        summary={`${words}.`}
        twin={() => ({
          head: ["n", "steps to the root", "comes from"],
          rows: nodes.map(({ branch }) => [
            short(branch.value),
            branch.depth,
            before(branch.value).map(short).join(", "),
          ]),
        })}
      >
        <div class="tree-body">
          <div class="tree-space" tabIndex={0} role="region" aria-label={`${words}.`}>
            <svg width={wide} height={high} viewBox={`0 ${-ROW / 2} ${wide} ${high}`}>
              {nodes.map(
                ({ branch: { value, depth }, row, from }) =>
                  from && (
                    <path
                      key={String(value)}
                      class={value === 2n * from.branch.value ? "link" : "link odd"}
                      d={
                        `M${at(depth - 1)} ${from.row * ROW}C${at(depth - 0.5)} ${from.row * ROW} ` +
                        `${at(depth - 0.5)} ${row * ROW} ${at(depth)} ${row * ROW}`
                      }
                    />
                  ),
              )}
              {nodes.map(({ branch, row }) => (
                <Twig key={String(branch.value)} branch={branch} y={row * ROW} delay={delay} step={step} />
              ))}
            </svg>
          </div>
          <NodeFacts />
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

/** About the branch that was clicked: start, steps, greatest value, first terms. */
function NodeFacts() {
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
        {integer(walked.delay)} steps, {integer(walked.odd)} odd, peak {short(walked.peak)} at step{" "}
        {integer(walked.peakStep)}
      </p>
      <p class="small num">
        {first.map(short).join(" → ")}
        {walked.delay >= 15 ? " → …" : ""}
      </p>
      <div class="row">
        <button
          type="button"
          onClick={() => {
            state.root.value = state.node.value;
            state.open.value = [];
            state.commit();
          }}
        >
          Make it the root
        </button>
        <button type="button" onClick={() => toggle(value)}>
          Fold or unfold
        </button>
        <button type="button" onClick={() => choose(value)}>
          Trajectory
        </button>
      </div>
    </aside>
  );
}
