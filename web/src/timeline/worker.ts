/** Web worker that reads traces, so that the page stays responsive. */

import { loaded, type Loaded } from "./load";
import { buffersOf } from "./model";
import { messageOf } from "../lib/errors";

export type Answer = { id: number; loaded: Loaded } | { id: number; error: string };

self.onmessage = async ({ data }: MessageEvent<{ id: number; source: ArrayBuffer | Blob }>) => {
  const send = postMessage as (answer: Answer, transfer?: Transferable[]) => void;
  try {
    const trace = await loaded(new Response(data.source).body as ReadableStream<Uint8Array>);
    // Arrays can share a buffer, which can be transferred only once.
    send({ id: data.id, loaded: trace }, [...new Set(buffersOf(trace))]);
  } catch (error) {
    send({ id: data.id, error: messageOf(error) });
  }
};
