/** Web worker for computations that would block the page: delays of windows, and trajectories of huge numbers. */

import { table, window as delaysOf } from "./delays";
import type { Answer, Answers, Ask } from "./messages";
import { sample } from "./sample";
import { values, walk, type Trajectory } from "./walk";
import { messageOf } from "../../../lib/errors";

/** Maximum number of cached trajectories. */
const KEEP = 10;
const kept = new Map<bigint, Trajectory>();

function walked(n: bigint): Trajectory {
  const walked = kept.get(n) ?? walk(n);
  kept.delete(n);
  kept.set(n, walked);
  for (const old of [...kept.keys()].slice(0, -KEEP)) kept.delete(old);
  return walked;
}

function answer(ask: Ask): [Answers[keyof Answers], Transferable[]] {
  if (ask.kind === "window") {
    const exact = delaysOf(ask.body.start, ask.body.count);
    return [exact, [exact.delays.buffer, exact.bits.buffer]];
  }
  if (ask.kind === "sample") {
    const made = sample(ask.body.range, ask.body.count, ask.body.log);
    return [made, [made.far, made.weight, made.delays, made.bits, made.rest].map((each) => each.buffer)];
  }
  if (ask.kind === "table") return [{ text: table(ask.body.start, ask.body.count) }, []];
  if (ask.kind === "terms") return [{ values: values(walked(ask.body.n), ask.body.step, ask.body.count) }, []];
  const { kept: _, ...path } = walked(ask.body.n);
  return [path, []];
}

self.onmessage = ({ data }: MessageEvent<Ask>) => {
  try {
    const [body, moved] = answer(data);
    self.postMessage({ id: data.id, body } satisfies Answer, { transfer: moved });
  } catch (error) {
    self.postMessage({ id: data.id, error: messageOf(error) } satisfies Answer);
  }
};
