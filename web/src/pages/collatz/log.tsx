/** The event log. */

import { useEffect, useRef } from "preact/hooks";
import { LENGTH_CLASSES } from "./model/fit";
import { formatClock, formatInteger } from "../../lib/format";
import { clearLog, saveLog } from "./model/page-actions";
import { CAPACITY, droppedCount, isSearching, lines, matchingLines } from "./model/events";
import { CheckboxField } from "./fields";
import { state } from "./model/state";
import { Button } from "../../ui/button";

/** Maximum number of displayed lines; the file contains all lines. */
const MAX_LINES = 500;

export function LogView() {
  const box = useRef<HTMLDivElement>(null);
  const some = matchingLines.value;
  useEffect(() => {
    if (state.follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [some, state.follow.value]);
  useEffect(() => {
    if (isSearching.value) document.getElementById("find")?.focus();
    isSearching.value = false;
  }, [isSearching.value]);
  const rolled = () => {
    const element = box.current;
    // scrolling up stops following the end
    if (element && state.follow.peek() && element.scrollHeight - element.scrollTop - element.clientHeight > 60)
      state.follow.value = false;
  };
  return (
    <div class="stack">
      <div class="row">
        <label class="inline">
          find
          <input
            id="find"
            type="search"
            value={state.find.value}
            onInput={(event) => (state.find.value = event.currentTarget.value)}
          />
        </label>
        <label class="inline">
          steps
          <select value={state.length.value} onChange={(event) => (state.length.value = event.currentTarget.value)}>
            <option value="">all</option>
            {LENGTH_CLASSES.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <CheckboxField name="stars" title="More than 100 steps, or a peak above 100 n">
          starred
        </CheckboxField>
        <CheckboxField name="follow">follow the end</CheckboxField>
        <Button onClick={clearLog}>Clear</Button>
        <Button onClick={saveLog}>Save as text</Button>
        <span class="small soft num">
          {formatInteger(some.length)} of {formatInteger(lines.value.length)} lines
          {droppedCount.value
            ? `, ${formatInteger(droppedCount.value)} older than ${formatInteger(CAPACITY)} lines are gone`
            : ""}
        </span>
      </div>
      <div class="log-lines" ref={box} onScroll={rolled} tabIndex={0} role="log" aria-label="Log" aria-live="off">
        {some.length > MAX_LINES && (
          <p class="soft small">{formatInteger(some.length - MAX_LINES)} older lines are in the file only.</p>
        )}
        {some.slice(-MAX_LINES).map((line) => (
          <p key={line.id} class={line.isStarred ? "star" : ""}>
            <time class="soft">{formatClock(line.time)}</time>{" "}
            <span class="star-mark">{line.isStarred ? "\u2605" : " "}</span>
            {line.isStarred && <span class="visually-hidden">starred </span>}
            <span class="soft kind">{line.kind}</span> {line.text}
          </p>
        ))}
        {some.length === 0 && (
          <p class="soft">{lines.value.length ? "No line matches the filter." : "Nothing has happened yet."}</p>
        )}
      </div>
    </div>
  );
}
