/** Synthetic traces of any size for tests, whose slices have no gaps except for idle times. */

import { FIRST, NONE, NO_CORE, RUN, STEAL, STOLEN, type Trace } from "../../src/timeline/model";

/** Return a synthetic trace of `count` slices. Equal arguments yield equal traces. */
export function synthetic(count: number, cores: number): Trace {
  let word = 12345;
  const random = () => {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
    return word / 2 ** 32;
  };
  const each = Math.floor(count / cores);
  const size = each * cores;
  const trace: Trace = {
    cores,
    scheduler: "work_stealing",
    cell: 0,
    replica: 0,
    until: 0,
    truncated: false,
    deadlocked: false,
    digest: "",
    parameters: { join: "suspend" },
    lanes: Uint32Array.from({ length: cores + 1 }, (_, core) => core * each),
    start: new Float64Array(size),
    end: new Float64Array(size),
    kind: new Uint8Array(size),
    flags: new Uint8Array(size),
    thread: new Uint32Array(size).fill(NONE),
    next: new Uint32Array(size).fill(NONE),
    wait: new Float64Array(size),
    attempts: new Uint32Array(size),
    victim: new Uint16Array(size).fill(NO_CORE),
    threads: {
      parent: new Uint32Array(size).fill(NONE),
      number: new Uint32Array(size),
      depth: new Uint8Array(size),
      work: new Float64Array(size),
      requestedChildren: new Uint16Array(size),
      readyAt: new Float64Array(size),
      startedAt: new Float64Array(size),
      endedAt: new Float64Array(size),
      slice: new Uint32Array(size),
    },
    steals: { time: new Float64Array(), from: new Uint16Array(), to: new Uint16Array(), thread: new Uint32Array() },
    ready: { time: new Float64Array(), count: new Uint32Array() },
  };
  for (let slice = 0; slice < size; slice += 1)
    fill(trace, slice, slice % each === 0 ? 0 : (trace.end[slice - 1] as number), random);
  trace.until = trace.end.reduce((max, end) => Math.max(max, end), 0);
  return trace;
}

function fill(trace: Trace, slice: number, after: number, random: () => number): void {
  const { threads } = trace;
  const begin = after + (random() < 0.3 ? random() * 20 : 0);
  trace.start[slice] = begin;
  trace.end[slice] = begin - 10 * Math.log(1 - random());
  trace.kind[slice] = random() < 0.1 ? STEAL : RUN;
  if (trace.kind[slice] === RUN) trace.thread[slice] = slice;
  trace.flags[slice] = trace.kind[slice] === RUN ? FIRST | (random() < 0.1 ? STOLEN : 0) : 0;
  trace.wait[slice] = random() * 30;
  const parent = slice > 100 && random() < 0.8 ? Math.floor(random() * slice) : NONE;
  if (parent !== NONE && (threads.depth[parent] as number) < 12) {
    threads.parent[slice] = parent;
    threads.depth[slice] = (threads.depth[parent] as number) + 1;
  }
  threads.number[slice] = slice;
  threads.work[slice] = (trace.end[slice] as number) - begin;
  threads.readyAt[slice] = threads.startedAt[slice] = begin;
  threads.endedAt[slice] = trace.end[slice] as number;
  threads.slice[slice] = slice;
}
