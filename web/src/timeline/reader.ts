/** Client of the web worker that reads traces. */

import type { LoadedTrace } from "./load";
import type { Answer } from "./worker";

let worker: Worker | undefined;
let count = 0;
const waiting = new Map<number, (answer: Answer) => void>();

function getWorker(): Worker {
  const made = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  made.onmessage = ({ data }: MessageEvent<Answer>) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  };
  made.onerror = () => {
    for (const [id, answered] of waiting)
      answered({ id, error: "reading the trace failed: the file may be too large for this browser" });
    waiting.clear();
    worker = undefined;
  };
  return made;
}

/**
 * Read a Chrome trace of this cluster, transferring its bytes to the worker. Throws an Error that describes an invalid
 * trace.
 */
export function readTrace(source: ArrayBuffer | Blob): Promise<LoadedTrace> {
  worker ??= getWorker();
  count += 1;
  const id = count;
  const answer = new Promise<LoadedTrace>((done, refused) => {
    waiting.set(id, (answered) => ("loaded" in answered ? done(answered.loaded) : refused(new Error(answered.error))));
  });
  worker.postMessage({ id, source }, source instanceof ArrayBuffer ? [source] : []);
  return answer;
}
