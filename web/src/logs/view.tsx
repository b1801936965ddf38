/** View of a unit's log, which renders only the visible lines. */

import "./logs.css";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { download } from "../lib/export";
import { formatBytes, formatInteger } from "../lib/format";
import { bindShortcuts } from "../lib/keys";
import { scrollTopOf, computeVisibleRows } from "../lib/visible-rows";
import { Button } from "../ui/button";
import { LoadingRows } from "../ui/table";
import { ErrorMessage } from "../ui/error-message";
import type { LogLines } from "./lines";
import { openLog, STREAMS, type Log, type StreamName } from "./log";
import { MAX_HITS, LogSearch } from "./search";
import { markHits, splitStyles } from "./terminal";

/** Height of a line and of the box in pixels. */
const LINE_HEIGHT = 18;
const BOX_HEIGHT = 26 * LINE_HEIGHT;
/** Height of the padding and the border of the box in pixels. */
const FRAME_HEIGHT = 10;

interface Props {
  job: string;
  unit: number;
  running: boolean;
}

export function LogView({ job, unit, running }: Props) {
  const stream = useSignal<StreamName>("all");
  return (
    <div class="log-view" role="group" aria-label={`Log of unit ${unit}`}>
      <OpenLog job={job} unit={unit} running={running} stream={stream.value} key={stream.value}>
        <div class="segments" role="group" aria-label="Stream">
          {STREAMS.map((name) => (
            <Button key={name} aria-pressed={stream.value === name} onClick={() => (stream.value = name)}>
              {name === "all" ? "both" : name}
            </Button>
          ))}
        </div>
      </OpenLog>
    </div>
  );
}

function OpenLog({
  job,
  unit,
  running,
  stream,
  children,
}: Props & { stream: StreamName; children: preact.ComponentChildren }) {
  const opened = useSignal<Log | undefined>(undefined);
  useEffect(() => {
    const { log, stop } = openLog(job, unit, stream, () => running);
    const unsubscribe = log.subscribe((value) => (opened.value = value));
    return () => {
      unsubscribe();
      stop();
    };
  }, []);
  const log = opened.value;
  const save = () => log && download(`${job}-${unit}-${stream}.log`, new Blob([log.lines.allBytes().slice()]));
  return (
    <>
      <div class="row">
        <h3>Log</h3>
        {children}
        <span class="grow small soft" role="status">
          {log && statusText(log, running)}
        </span>
        <Button disabled={!log?.lines.size} onClick={save}>
          Save
        </Button>
      </div>
      {log?.problem ? (
        log.problem.status === 404 ? (
          <p class="soft">{log.problem.detail}</p>
        ) : (
          <ErrorMessage subject="Log" problem={log.problem} />
        )
      ) : log ? (
        <LogBox log={log} />
      ) : (
        <LoadingRows rows={3} />
      )}
    </>
  );
}

function statusText({ lines, total, isGrowing: going, problem }: Log, running: boolean): string {
  if (problem) return "";
  const size = `${formatBytes(lines.size)}, ${formatInteger(lines.count)} line${lines.count === 1 ? "" : "s"}`;
  if (going && total === undefined && running) return `live, ${size} so far`;
  return going && total ? `${formatBytes(lines.size)} of ${formatBytes(total)}` : size;
}

function LogBox({ log: { lines, isGrowing: going } }: { log: Log }) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const following = useSignal(going);
  const search = useSearch(lines, going, (line) => {
    following.value = false;
    if (box.current) box.current.scrollTop = scrollTopOf(line, lines.count, LINE_HEIGHT, BOX_HEIGHT);
  });
  useLayoutEffect(() => {
    if (following.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const onScroll = (event: Event) => {
    const at = event.currentTarget as HTMLDivElement;
    top.value = at.scrollTop;
    // Scrolling up stops following until the end is visible again.
    if (going) following.value = at.scrollTop + at.clientHeight >= at.scrollHeight - LINE_HEIGHT;
  };
  const seen = computeVisibleRows(lines.count, LINE_HEIGHT, top.value, BOX_HEIGHT);
  const digits = String(lines.count).length;
  return (
    <>
      <div class="row">
        {search.field}
        {going && (
          <label class="row">
            <input
              type="checkbox"
              checked={following.value}
              onChange={(event) => (following.value = event.currentTarget.checked)}
            />
            Follow the end
          </label>
        )}
      </div>
      <div
        class="log-lines"
        ref={box}
        onScroll={onScroll}
        tabIndex={0}
        role="log"
        aria-label="Lines of the log"
        aria-live="off"
        style={{ maxHeight: `${BOX_HEIGHT + FRAME_HEIGHT}px` }}
      >
        {lines.count === 0 && <p class="soft">{going ? "Nothing was written yet." : "Nothing was written."}</p>}
        <div style={{ height: `${seen.height}px` }}>
          <div class="in-sight" style={{ top: `${seen.top}px` }}>
            {Array.from({ length: seen.last - seen.first }, (_, index) => seen.first + index).map((line) => (
              <Line key={line} lines={lines} line={line} digits={digits} search={search.wanted} at={search.line} />
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

interface LineProps {
  lines: LogLines;
  line: number;
  digits: number;
  search: string;
  /** Current line of the search. */
  at: number | undefined;
}

function Line({ lines, line, digits, search, at }: LineProps) {
  const note = lines.noteAt(line);
  if (note !== undefined) return <p class="note">{note}</p>;
  return (
    <p data-at={line === at ? "true" : undefined}>
      <span class="line-number" aria-hidden="true">
        {String(line + 1).padStart(digits)}
      </span>
      {markHits(splitStyles(lines.text(line)), search).map(({ text, style }, index) =>
        style ? (
          <span key={index} class={style}>
            {text}
          </span>
        ) : (
          text
        ),
      )}
    </p>
  );
}

// -- search ---------------------------------------------------------------------------------------------------------

/** Delay in milliseconds between a key press and the search. */
const SEARCH_DELAY_MS = 150;

/** Search the lines while they grow. `show` scrolls to a line. */
function useSearch(lines: LogLines, going: boolean, show: (line: number) => void) {
  const typed = useSignal("");
  const search = useSignal<LogSearch | undefined>(undefined);
  const index = useSignal(0);
  const hits = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const timer = setTimeout(() => {
      search.value = typed.value ? new LogSearch(typed.value) : undefined;
      [index.value, hits.value] = [0, 0];
    }, SEARCH_DELAY_MS);
    return () => clearTimeout(timer);
  }, [typed.value, lines]);
  useEffect(() => {
    const current = search.value;
    if (!current) return undefined;
    let timer = 0;
    let first = !hits.peek();
    const step = () => {
      const done = current.step(lines, !going);
      hits.value = current.hits.length;
      if (first && current.hits.length) {
        first = false;
        show(current.hits[0] as number);
      }
      if (!done) timer = setTimeout(step) as unknown as number;
    };
    step();
    return () => clearTimeout(timer);
  }, [search.value, lines, lines.complete, going]);
  useLayoutEffect(() => bindShortcuts({ "/": { text: "search the log", run: () => input.current?.focus() } }), []);
  const move = (step: number) => {
    const found = search.peek()?.hits;
    if (!found?.length) return;
    index.value = (index.peek() + step + found.length) % found.length;
    show(found[index.value] as number);
  };
  const field = (
    <SearchField typed={typed.value} input={input} onType={(text) => (typed.value = text)} onMove={move}>
      {search.value && formatHitCount(index.value, hits.value)}
    </SearchField>
  );
  return { field, wanted: search.value?.searchText ?? "", line: search.value?.hits[index.value] };
}

function formatHitCount(index: number, hits: number): string {
  if (!hits) return "not there";
  const more = hits >= MAX_HITS ? " or more" : "";
  return `${formatInteger(index + 1)} of ${formatInteger(hits)} line${hits === 1 ? "" : "s"}${more}`;
}

interface SearchProps {
  typed: string;
  input: preact.RefObject<HTMLInputElement | null>;
  onType: (text: string) => void;
  onMove: (step: number) => void;
  children: preact.ComponentChildren;
}

function SearchField({ typed, input, onType, onMove, children }: SearchProps) {
  return (
    <>
      <input
        ref={input}
        type="search"
        aria-label="Search the log"
        placeholder="Search"
        value={typed}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onType(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          onMove(event.shiftKey ? -1 : 1);
        }}
      />
      <Button aria-label="Previous hit in the log" disabled={!typed} onClick={() => onMove(-1)}>
        Previous hit
      </Button>
      <Button aria-label="Next hit in the log" disabled={!typed} onClick={() => onMove(1)}>
        Next hit
      </Button>
      <span class="small soft num" role="status">
        {children}
      </span>
    </>
  );
}
