/** The log of the marked range up to the playhead, with system messages. */

import { signal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { formatClock, formatCount, formatInteger } from "../../lib/format";
import { FILTER_HELP, createLine, findLines, MAX_LINES, parseFilter, formatMicroseconds } from "./model/log";
import { NONE } from "../../timeline/model";
import {
  clearMessages,
  loaded,
  messages,
  selectThread,
  slowPlayhead as playhead,
  slowRange as range,
  state,
  endTime,
} from "./model/state";
import { Button } from "../../ui/button";

const ROW_HEIGHT = 22;
/** Time before which lines are hidden. */
const clearedUntil = signal(-1);

export function clearLog(): void {
  clearedUntil.value = playhead.peek() ?? endTime.peek();
  clearMessages();
}

const visibleLines = () => {
  if (!loaded.value) return { slices: [], more: false, wrong: "" };
  const { trace, index, tree } = loaded.value;
  const tests = parseFilter(trace, tree, state.log.value);
  if (typeof tests === "string") return { slices: [], more: false, wrong: tests };
  const to = Math.min(range.value?.t1 ?? Infinity, playhead.value ?? endTime.value);
  const gone = clearedUntil.value >= 0 && to >= clearedUntil.value ? clearedUntil.value + 1e-9 : 0;
  return { ...findLines(trace, index, Math.max(range.value?.t0 ?? 0, gone), to, tests), wrong: "" };
};

export function LogView() {
  const lines = useComputed(visibleLines).value;
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const tall = 320;
  const messageList = messages.value;
  const count = messageList.length + lines.slices.length;
  useEffect(() => {
    if (state.follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [count, state.follow.value, lines.slices.at(-1)]);
  const scroll = () => {
    const at = box.current as HTMLDivElement;
    top.value = at.scrollTop;
    // Scrolling up stops following until the end is visible again.
    const end = at.scrollTop + at.clientHeight >= at.scrollHeight - ROW_HEIGHT;
    if (state.follow.peek() !== end && at.scrollHeight > at.clientHeight) state.follow.value = end;
  };
  const first = Math.max(0, Math.floor(top.value / ROW_HEIGHT) - 5);
  const places = Array.from(
    { length: Math.max(0, Math.min(count - first, Math.ceil(tall / ROW_HEIGHT) + 10)) },
    (_, position) => first + position,
  );
  return (
    <div class="log">
      <div class="row">
        <label class="row grow">
          Filter{" "}
          <input
            type="text"
            id="log-filter"
            class="grow"
            value={state.log.value}
            placeholder="core:3 T3.0 stolen"
            spellcheck={false}
            autocomplete="off"
            aria-describedby="log-known"
            onInput={(event) => (state.log.value = event.currentTarget.value)}
          />
        </label>
        <label class="row">
          <input
            type="checkbox"
            checked={state.follow.value}
            onChange={(event) => (state.follow.value = event.currentTarget.checked)}
          />
          Follow the end
        </label>
        <Button onClick={clearLog}>Clear</Button>
      </div>
      <p class="small soft" id="log-known" aria-live="polite">
        {lines.wrong ? (
          <span class="bad">{lines.wrong}</span>
        ) : (
          <>
            {formatCount(lines.slices.length, "line")}
            {lines.more && `, the last ${formatInteger(MAX_LINES)}: mark a range or filter for others`}. Knows{" "}
            {FILTER_HELP}.
          </>
        )}
      </p>
      <div
        class="lines"
        ref={box}
        onScroll={scroll}
        tabIndex={0}
        role="log"
        aria-label="Log"
        aria-live="off"
        style={{ height: `${tall}px` }}
      >
        <div style={{ height: `${Math.max(1, count) * ROW_HEIGHT}px`, position: "relative" }}>
          {count === 0 && (
            <p class="soft line">Nothing happened in this range. Start a job, play it, or widen the filter.</p>
          )}
          {places.map((position) => (
            <LogRow index={position} slices={lines.slices} key={position} />
          ))}
        </div>
      </div>
    </div>
  );
}

function LogRow({ index, slices }: { index: number; slices: readonly number[] }) {
  const style = { top: `${index * ROW_HEIGHT}px` };
  const system = messages.value[index];
  if (system)
    return (
      <p class="line" style={style}>
        <span class="num soft">{formatClock(system.time)}</span> <b>system</b> {system.text}
      </p>
    );
  const slice = slices[index - messages.value.length];
  const trace = loaded.value?.trace;
  if (slice === undefined || !trace) return null;
  const { time, name, path, depth, text } = createLine(trace, slice);
  const thread = trace.thread[slice] as number;
  return (
    <p class="line" style={style}>
      <span class="num soft">{formatMicroseconds(time)}</span>{" "}
      {thread === NONE ? (
        <b>{name}</b>
      ) : (
        <Button class="link num" onClick={() => selectThread(thread, slice)} title={path}>
          {name}
        </Button>
      )}{" "}
      <span class="num soft">{depth === undefined ? "" : `d${depth} ${path}`}</span> {text}
    </p>
  );
}
