/** Web worker for computations that would block the page: delays of windows, and trajectories of huge numbers. */

import { formatTable, computeWindow as delaysOf } from "./delays";
import type { WorkerResponse, ResponseBodies, WorkerRequest } from "./messages";
import { createSample } from "./sample";
import { computeValues, computeTrajectory, type Trajectory } from "./trajectory";
import { messageOf } from "../../../lib/errors";

/** Maximum number of cached trajectories. */
const MAX_CACHED = 10;
const cache = new Map<bigint, Trajectory>();

function getTrajectory(n: bigint): Trajectory {
  const walked = cache.get(n) ?? computeTrajectory(n);
  cache.delete(n);
  cache.set(n, walked);
  for (const old of [...cache.keys()].slice(0, -MAX_CACHED)) cache.delete(old);
  return walked;
}

function handleRequest(ask: WorkerRequest): [ResponseBodies[keyof ResponseBodies], Transferable[]] {
  if (ask.kind === "window") {
    const exact = delaysOf(ask.body.start, ask.body.count);
    return [exact, [exact.delays.buffer, exact.bits.buffer]];
  }
  if (ask.kind === "sample") {
    const made = createSample(ask.body.range, ask.body.count, ask.body.log);
    return [made, [made.distance, made.weight, made.delays, made.bits, made.rest].map((each) => each.buffer)];
  }
  if (ask.kind === "table") return [{ text: formatTable(ask.body.start, ask.body.count) }, []];
  if (ask.kind === "terms")
    return [{ values: computeValues(getTrajectory(ask.body.n), ask.body.step, ask.body.count) }, []];
  const { storedValues: _, ...path } = getTrajectory(ask.body.n);
  return [path, []];
}

self.onmessage = ({ data }: MessageEvent<WorkerRequest>) => {
  try {
    const [body, moved] = handleRequest(data);
    self.postMessage({ id: data.id, body } satisfies WorkerResponse, { transfer: moved });
  } catch (error) {
    self.postMessage({ id: data.id, error: messageOf(error) } satisfies WorkerResponse);
  }
};
