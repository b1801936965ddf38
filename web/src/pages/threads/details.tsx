/** The selected thread: its identity, lifetime and slices. */

import { formatCompact, formatInteger } from "../../lib/format";
import { formatMicroseconds } from "./model/log";
import { coreOf, NO_CORE, threadName, NONE, threadPath, threadSlices, STOLEN } from "../../timeline/model";
import { childrenOf } from "../../timeline/tree";
import { viewAround } from "../../timeline/view";
import { loaded, selectThread, selectedThread, setView, state, endTime } from "./model/state";
import { Button } from "../../ui/button";

/** Maximum number of listed children. */
const MAX_CHILDREN = 12;

export function zoomToSelected(): void {
  const [opened, thread] = [loaded.peek(), selectedThread.peek()];
  if (!opened || thread === NONE) return;
  const { threads } = opened.trace;
  const end = threads.endedAt[thread] as number;
  setView(
    viewAround(threads.readyAt[thread] as number, Number.isFinite(end) ? end : opened.trace.until, endTime.peek()),
  );
  state.commit();
}

export function Details() {
  const opened = loaded.value;
  const thread = selectedThread.value;
  if (!opened) return null;
  if (thread === NONE) {
    const wrong = state.pick.value !== "";
    return (
      <p class="soft small">
        {wrong
          ? `This replica has no thread ${state.pick.value}.`
          : "Click a slice, a part of the tree or a name in the log to see its thread here."}
      </p>
    );
  }
  const { trace, tree } = opened;
  const { threads } = trace;
  const slices = threadSlices(trace, thread);
  const first = slices[0] as number;
  const parent = threads.parent[thread] as number;
  const children = childrenOf(tree, thread);
  const ended = threads.endedAt[thread] as number;
  const stolen = (trace.flags[first] as number) & STOLEN ? trace.steals.thread.indexOf(thread) : -1;
  const cores = [...new Set(slices.map((each) => coreOf(trace, each)))];
  const link = (each: number) => (
    <Button class="link num" key={each} onClick={() => selectThread(each)}>
      {threadPath(threads, each)}
    </Button>
  );
  const from = stolen < 0 ? NO_CORE : (trace.steals.from[stolen] as number);
  return (
    <section class="details" aria-label="Picked thread">
      <div class="row">
        <h2>{threadName(threads, thread)}</h2>
        <span class="num soft">{threadPath(threads, thread)}</span>
        <span class="grow" />
        <Button onClick={zoomToSelected}>Zoom to it</Button>
      </div>
      <dl>
        <div>
          <dt>depth</dt>
          <dd class="num">{threads.depth[thread]}</dd>
        </div>
        <div>
          <dt>parent</dt>
          <dd>{parent === NONE ? "none, a root" : link(parent)}</dd>
        </div>
        <div>
          <dt>created</dt>
          <dd class="num">{formatMicroseconds(threads.readyAt[thread] as number)}</dd>
        </div>
        <div>
          <dt>waited</dt>
          <dd class="num">
            {formatMicroseconds((threads.startedAt[thread] as number) - (threads.readyAt[thread] as number))}
          </dd>
        </div>
        <div>
          <dt>ran on</dt>
          <dd class="num">
            core {cores.join(", ")}
            {slices.length > 1 && ` in ${formatInteger(slices.length)} slices`}
          </dd>
        </div>
        <div>
          <dt>work</dt>
          <dd class="num">{formatMicroseconds(threads.work[thread] as number)}</dd>
        </div>
        <div>
          <dt>stolen</dt>
          <dd class="num">{from === NO_CORE ? "no" : `from core ${from}`}</dd>
        </div>
        <div>
          <dt>ended</dt>
          <dd class="num">
            {Number.isFinite(ended)
              ? formatMicroseconds(ended)
              : trace.deadlocked
                ? "never: deadlock"
                : "after the trace"}
          </dd>
        </div>
        <div>
          <dt>subtree</dt>
          <dd class="num">
            {formatCompact(tree.count[thread])} thread{tree.count[thread] === 1 ? "" : "s"}
          </dd>
        </div>
        <div>
          <dt>children</dt>
          <dd>
            {children.length === 0
              ? "none"
              : children.length > MAX_CHILDREN
                ? formatInteger(children.length)
                : [...children].map((each) => <span key={each}>{link(each)} </span>)}
            {(threads.requestedChildren[thread] as number) > children.length && (
              <span class="soft"> of {threads.requestedChildren[thread]} wanted</span>
            )}
          </dd>
        </div>
      </dl>
    </section>
  );
}
