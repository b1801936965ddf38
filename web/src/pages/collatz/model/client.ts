/** Client of the web workers: one for pictures and one for trajectories, so that they do not delay each other. */

import { signal } from "@preact/signals";
import type { WorkerResponse, ResponseBodies, RequestBodies } from "./messages";
import type { Range } from "./view";

/** Number of requests that the web workers are computing. */
export const activeRequests = signal(0);

interface PendingRequest {
  resolve: (body: never) => void;
  reject: (error: Error) => void;
}

class WorkerClient {
  private worker: Worker | undefined;
  private readonly waiting = new Map<number, PendingRequest>();
  private count = 0;

  request<K extends keyof RequestBodies>(kind: K, body: RequestBodies[K]): Promise<ResponseBodies[K]> {
    this.count += 1;
    const id = this.count;
    return new Promise((done, failed) => {
      this.waiting.set(id, { resolve: done as PendingRequest["resolve"], reject: failed });
      activeRequests.value = activeRequests.peek() + 1;
      this.getWorker().postMessage({ id, kind, body });
    });
  }

  private getWorker(): Worker {
    if (this.worker) return this.worker;
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<WorkerResponse>) => this.receive(data);
    this.worker.onerror = (event) => this.rejectAll(event.message || "the page's worker could not start");
    return this.worker;
  }

  private receive(answer: WorkerResponse): void {
    const request = this.waiting.get(answer.id);
    if (!request) return;
    this.waiting.delete(answer.id);
    activeRequests.value = activeRequests.peek() - 1;
    if (answer.error === undefined) request.resolve(answer.body as never);
    else request.reject(new Error(answer.error));
  }

  private rejectAll(message: string): void {
    for (const { reject: failed } of this.waiting.values()) failed(new Error(message));
    activeRequests.value = activeRequests.peek() - this.waiting.size;
    this.waiting.clear();
    this.worker?.terminate();
    this.worker = undefined;
  }
}

const pictureClient = new WorkerClient();
const pathClient = new WorkerClient();

export const requestDelays = (start: bigint, count: number) => pictureClient.request("window", { start, count });
export const requestSample = (range: Range, count: number, log: boolean) =>
  pictureClient.request("sample", { range, count, log });
export const requestTrajectory = (n: bigint) => pathClient.request("walk", { n });
export const requestTerms = (n: bigint, step: number, count: number) => pathClient.request("terms", { n, step, count });
export const requestTable = (start: bigint, count: number) => pathClient.request("table", { start, count });
