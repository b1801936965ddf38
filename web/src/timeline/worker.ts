/** Web worker that reads traces, so that the page stays responsive. */

import { loadTrace, type LoadedTrace } from "./load";
import { collectBuffers } from "./model";
import { messageOf } from "../lib/errors";

export type Answer = { id: number; loaded: LoadedTrace } | { id: number; error: string };

self.onmessage = async ({ data }: MessageEvent<{ id: number; source: ArrayBuffer | Blob }>) => {
  const send = postMessage as (answer: Answer, transfer?: Transferable[]) => void;
  try {
    const trace = await loadTrace(new Response(data.source).body as ReadableStream<Uint8Array>);
    // Arrays can share a buffer, which can be transferred only once.
    send({ id: data.id, loaded: trace }, [...new Set(collectBuffers(trace))]);
  } catch (error) {
    send({ id: data.id, error: messageOf(error) });
  }
};
