/** A trace with its precomputed index. */

import { critical, type Critical } from "./critical";
import { indexed, type Index } from "./lod";
import type { Trace } from "./model";
import { Builder } from "./parse";
import { scanned } from "./scan";
import { treeOf, type Tree } from "./tree";

export interface Loaded {
  trace: Trace;
  index: Index;
  tree: Tree;
  critical: Critical;
}

export async function loaded(stream: ReadableStream<Uint8Array>): Promise<Loaded> {
  const builder = new Builder();
  const trace = builder.finish(await scanned(stream, builder.add));
  return { trace, index: indexed(trace), tree: treeOf(trace), critical: critical(trace) };
}
