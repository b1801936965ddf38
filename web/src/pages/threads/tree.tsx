/** The spawn tree as an icicle or an expandable list, with widths that show time on cores. */

import { useComputed, useSignal } from "@preact/signals";
import { cssColor, createPalette, rampColor } from "../../timeline/palette";
import { formatCompact, formatCount, formatInteger, formatPercent } from "../../lib/format";
import { isDark, token } from "../../lib/theme";
import type { LoadedTrace } from "../../timeline/load";
import { waitLevel } from "../../timeline/sums";
import { threadAt, formatMicroseconds } from "./model/log";
import { ancestorsOf, threadName, NONE, threadPath, STOLEN } from "../../timeline/model";
import {
  childrenOf,
  heaviestPath,
  layOutIcicle,
  sumSubtrees,
  type IciclePiece,
  type SubtreeTimes,
} from "../../timeline/tree";
import { Button, TextButton } from "../../ui/button";
import { useCanvas } from "../../ui/canvas";
import { Canvas, Figure } from "../../ui/figure";
import { loaded, colorMode, selectThread, selectedThread, playhead, slowRange as range, state } from "./model/state";

/** Height of an icicle row and maximum total height in pixels; deep trees have flatter rows. */
const ROW_HEIGHT = 20,
  MAX_HEIGHT = 480;

function rowHeight(rows: number): number {
  return Math.max(8, Math.min(ROW_HEIGHT, Math.floor(MAX_HEIGHT / rows)));
}

function threadLevel({ trace, index }: LoadedTrace, thread: number): number {
  const first = trace.threads.slice[thread] as number;
  if (colorMode.value === "stolen") return (trace.flags[first] as number) & STOLEN ? 1 : 0;
  if (colorMode.value === "wait") return waitLevel(trace.wait[first] as number);
  return (trace.threads.depth[thread] as number) / Math.max(1, index.maxDepth);
}

export function TreeView() {
  const opened = loaded.value;
  const held = useComputed(() =>
    loaded.value ? sumSubtrees(loaded.value.trace, range.value?.t0 ?? 0, range.value?.t1 ?? Infinity) : undefined,
  ).value;
  if (!opened || !held) return <p class="soft">Load a replica to see its threads.</p>;
  const root = state.root.value ? threadAt(opened.trace, opened.tree, state.root.value) : NONE;
  const heaviest = heaviestPath(opened.tree, held);
  const follow = () => selectThread(heaviest.at(-1) ?? NONE);
  return (
    <div class="tree">
      <div class="row">
        <Crumbs opened={opened} root={root} />
        <span class="grow" />
        <span class="small soft">
          {formatCompact(held.threads)} threads, {formatMicroseconds(held.total)} on cores
          {range.value && " in the marked range"}
        </span>
        <Button onClick={follow} disabled={!heaviest.length}>
          Heaviest path
        </Button>
        <Button
          aria-pressed={state.tree.value === "list"}
          onClick={() => (state.tree.value = state.tree.value === "list" ? "icicle" : "list")}
        >
          {state.tree.value === "list" ? "As icicle" : "As list"}
        </Button>
      </div>
      {state.tree.value === "list" ? (
        <ThreadList
          trace={opened}
          times={held}
          root={root}
          heaviest={heaviest}
          key={`${state.root.value} ${heaviest[0]}`}
        />
      ) : (
        <Icicle trace={opened} times={held} root={root} heaviest={heaviest} />
      )}
    </div>
  );
}

function Crumbs({ opened: { trace }, root }: { opened: LoadedTrace; root: number }) {
  const line = root === NONE ? [] : ancestorsOf(trace.threads, root);
  const go = (path: string) => {
    state.root.value = path;
    state.commit();
  };
  return (
    <nav class="row crumbs" aria-label="Part of the tree">
      <TextButton onClick={() => go("")} disabled={!line.length}>
        all roots
      </TextButton>
      {line.map((thread) => (
        <TextButton key={thread} onClick={() => go(threadPath(trace.threads, thread))}>
          {threadPath(trace.threads, thread)}
        </TextButton>
      ))}
      {selectedThread.value !== NONE && selectedThread.value !== root && (
        <Button onClick={() => go(threadPath(trace.threads, selectedThread.value))}>
          Only {threadPath(trace.threads, selectedThread.value)} and below
        </Button>
      )}
    </nav>
  );
}

interface PartProps {
  trace: LoadedTrace;
  times: SubtreeTimes;
  root: number;
  heaviest: readonly number[];
}

const HINT =
  "Width is the time on cores of a thread and all its descendants. " +
  "Click picks a thread, a double click shows its subtree alone.";

/** Describe a piece's time on cores and its share; empty for several threads. */
function formatTime({ thread }: IciclePiece, held: SubtreeTimes): string {
  if (thread === NONE) return "";
  const spent = held.time[thread] as number;
  return `, ${formatMicroseconds(spent)} on cores, ${formatPercent(spent / held.total, 1)}`;
}

function Icicle({ trace: opened, times: held, root, heaviest }: PartProps) {
  const { trace, tree, index } = opened;
  const rows = (root === NONE ? index.maxDepth : (tree.height[root] as number)) + 1;
  const tall = rowHeight(rows);
  const pieces = useSignal<IciclePiece[]>([]);
  const under = useSignal<IciclePiece | undefined>(undefined);
  const canvas = useCanvas((context, width) => {
    pieces.value = layOutIcicle(tree, held, root, width, rows);
    draw(context, opened, pieces.peek(), heaviest, tall);
  });
  const at = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, row] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / tall)];
    return pieces.peek().find((piece) => piece.row === row && x >= piece.x && x < piece.x + piece.width);
  };
  const name = (piece: IciclePiece) =>
    piece.thread === NONE
      ? `${formatCount(piece.count, "thread")}, each too narrow to draw`
      : `${threadName(trace.threads, piece.thread)} (${threadPath(trace.threads, piece.thread)})`;
  const summary =
    `Spawn tree${root === NONE ? "" : ` below ${threadPath(trace.threads, root)}`}: ` +
    `${formatCount(held.threads, "thread")} with ${formatMicroseconds(held.total)} on cores, ` +
    `${formatCount(rows, "depth")}. ` +
    `The heaviest path ends in ${heaviest.length ? threadPath(trace.threads, heaviest.at(-1) as number) : "nothing"}.`;
  const twin = () => ({
    head: ["thread", "depth", "threads in it", "time on cores"],
    rows: pieces
      .peek()
      .map((piece) => [
        name(piece),
        piece.row,
        piece.count,
        formatMicroseconds(piece.thread === NONE ? 0 : (held.time[piece.thread] as number)),
      ]),
  });
  const enter = (piece: IciclePiece | undefined) => {
    if (!piece || piece.thread === NONE) return;
    state.root.value = threadPath(trace.threads, piece.thread);
    state.commit();
  };
  const hoveredPiece = under.value;
  return (
    <Figure summary={summary} getTable={twin}>
      <div
        class="icicle"
        style={{ height: `${rows * tall}px` }}
        onClick={(event) => ((piece) => piece && selectThread(piece.thread))(at(event))}
        onDblClick={(event) => enter(at(event))}
        onMouseMove={(event) => (under.value = at(event))}
        onMouseLeave={() => (under.value = undefined)}
      >
        <Canvas canvasRef={canvas} summary={summary} class="fill" />
      </div>
      <p class="small soft readout">
        {hoveredPiece
          ? `${name(hoveredPiece)}: ${formatCount(hoveredPiece.count, "thread")}${formatTime(hoveredPiece, held)}`
          : HINT}
      </p>
    </Figure>
  );
}

function draw(
  context: CanvasRenderingContext2D,
  opened: LoadedTrace,
  pieces: readonly IciclePiece[],
  heaviest: readonly number[],
  tall: number,
): void {
  const { trace } = opened;
  const paint = createPalette(colorMode.value, isDark.value, opened.index.maxDepth);
  const [now, heavy] = [playhead.value ?? Infinity, new Set(heaviest)];
  const pickedThread = selectedThread.value;
  const line = new Set(pickedThread === NONE ? [] : ancestorsOf(trace.threads, pickedThread));
  const way = new Set(state.critical.value ? opened.critical.path : []);
  context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  for (const { thread, row, x, width, count } of pieces) {
    const y = row * tall;
    const wide = Math.max(0.5, width - (width > 3 ? 1 : 0));
    const unborn = thread !== NONE && (trace.threads.readyAt[thread] as number) > now;
    // Several narrow threads have a neutral color.
    context.fillStyle =
      thread === NONE ? token("line-strong") : cssColor(rampColor(paint, threadLevel(opened, thread)));
    context.globalAlpha = unborn ? 0.15 : thread === NONE ? 0.6 : 1;
    context.fillRect(x, y, wide, tall - 1);
    context.globalAlpha = 1;
    if (thread === NONE) {
      drawText(context, `${formatCompact(count)} threads`, x, y, wide, tall, token("ink"));
      continue;
    }
    const mark = thread === pickedThread ? 3 : line.has(thread) ? 2 : 0;
    if (heavy.has(thread)) {
      context.fillStyle = token("ink");
      context.fillRect(x, y + tall - 3, wide, 2);
    }
    if (mark || way.has(thread)) {
      context.strokeStyle = token(mark ? "accent" : "ink");
      context.lineWidth = mark || 2;
      context.strokeRect(x + 1, y + 1, Math.max(1, wide - 2), tall - 3);
    }
    const [red, green, blue] = rampColor(paint, threadLevel(opened, thread));
    const bright = 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2 > 0.22;
    const ink = unborn ? token("ink") : bright ? "#101418" : "#ffffff";
    drawText(context, threadPath(trace.threads, thread), x, y, wide, tall, ink);
  }
}

function drawText(
  context: CanvasRenderingContext2D,
  words: string,
  x: number,
  y: number,
  maxWidth: number,
  tall: number,
  ink: string,
): void {
  if (maxWidth < 24 || tall < 14 || context.measureText(words).width > maxWidth - 8) return;
  context.fillStyle = ink;
  context.fillText(words, x + 4, y + tall / 2);
}

// -- list -------------------------------------------------------------------------------------------------------------

/** Number of children displayed at once; the others are summed. */
const MAX_CHILDREN = 25;

function ThreadList({ trace: opened, times: held, root, heaviest }: PartProps) {
  const open = useSignal<ReadonlySet<number>>(new Set([root, ...heaviest]));
  const toggle = (thread: number) => {
    const next = new Set(open.peek());
    if (!next.delete(thread)) next.add(thread);
    open.value = next;
  };
  return (
    <div class="tall list" tabIndex={0} role="region" aria-label="Threads as a list">
      <ThreadRows trace={opened} times={held} parent={root} heaviest={heaviest} open={open.value} toggle={toggle} />
    </div>
  );
}

/** Return the end of a long path, whose start is displayed above. */
function shortenPath(path: string): string {
  const parts = path.split(".");
  return parts.length > 8 ? `…${parts.slice(-4).join(".")}` : path;
}

interface ThreadRowsProps {
  trace: LoadedTrace;
  times: SubtreeTimes;
  parent: number;
  heaviest: readonly number[];
  open: ReadonlySet<number>;
  toggle: (thread: number) => void;
}

function ThreadRows(props: ThreadRowsProps) {
  const {
    trace: { trace, tree },
    times: held,
    parent,
    heaviest,
    open,
    toggle,
  } = props;
  const all = childrenOf(tree, parent)
    .filter((child) => held.activeThreads[child])
    .sort((left, right) => (held.time[right] as number) - (held.time[left] as number));
  const rest = all.subarray(MAX_CHILDREN).reduce((sum, child) => sum + (held.time[child] as number), 0);
  const share = (time: number) => `${(100 * time) / (held.total || 1)}%`;
  return (
    <ul>
      {[...all.subarray(0, MAX_CHILDREN)].map((thread) => {
        const path = threadPath(trace.threads, thread);
        const inner = childrenOf(tree, thread).length;
        return (
          <li key={thread}>
            <span class="leaf" data-picked={thread === selectedThread.value ? "true" : undefined}>
              {inner > 0 ? (
                <Button
                  class="plain"
                  aria-expanded={open.has(thread)}
                  aria-label={`children of ${path}`}
                  onClick={() => toggle(thread)}
                >
                  {open.has(thread) ? "−" : "+"}
                </Button>
              ) : (
                <i />
              )}
              <Button class="link num" title={path} onClick={() => selectThread(thread)}>
                {shortenPath(path)}
              </Button>
              <span class="num">{formatMicroseconds(held.time[thread] as number)}</span>
              <span class="num soft">
                {formatInteger(held.activeThreads[thread] as number)} thread
                {held.activeThreads[thread] === 1 ? "" : "s"}
              </span>
              <span class="meter" aria-hidden="true">
                <i style={{ width: share(held.time[thread] as number) }} />
              </span>
              {heaviest.includes(thread) && <span class="small soft mark">heaviest</span>}
            </span>
            {open.has(thread) && inner > 0 && <ThreadRows {...props} parent={thread} />}
          </li>
        );
      })}
      {all.length > MAX_CHILDREN && (
        <li class="small soft">
          {formatInteger(all.length - MAX_CHILDREN)} more, lighter ones: {formatMicroseconds(rest)} on cores
        </li>
      )}
    </ul>
  );
}
