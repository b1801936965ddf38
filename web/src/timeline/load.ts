/** A trace with its precomputed index. */

import { computeCriticalPath, type CriticalPath } from "./critical";
import { buildIndex, type TraceIndex } from "./sums";
import type { Trace } from "./model";
import { TraceBuilder } from "./parse";
import { scanTrace } from "./scan";
import { buildTree, type SpawnTree } from "./tree";

export interface LoadedTrace {
  trace: Trace;
  index: TraceIndex;
  tree: SpawnTree;
  critical: CriticalPath;
}

export async function loadTrace(stream: ReadableStream<Uint8Array>): Promise<LoadedTrace> {
  const builder = new TraceBuilder();
  const trace = builder.build(await scanTrace(stream, builder.add));
  return { trace, index: buildIndex(trace), tree: buildTree(trace), critical: computeCriticalPath(trace) };
}
