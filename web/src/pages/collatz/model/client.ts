/** Client of the web workers: one for pictures and one for trajectories, so that they do not delay each other. */

import { signal } from "@preact/signals";
import type { Answer, Answers, Asks } from "./messages";
import type { Range } from "./view";

/** Number of requests that the web workers are computing. */
export const computing = signal(0);

interface Waiting {
  done: (body: never) => void;
  failed: (error: Error) => void;
}

class Desk {
  private worker: Worker | undefined;
  private readonly waiting = new Map<number, Waiting>();
  private count = 0;

  ask<K extends keyof Asks>(kind: K, body: Asks[K]): Promise<Answers[K]> {
    this.count += 1;
    const id = this.count;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done: done as Waiting["done"], failed });
      computing.value = computing.peek() + 1;
      this.running().postMessage({ id, kind, body });
    });
  }

  private running(): Worker {
    if (this.worker) return this.worker;
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<Answer>) => this.receive(data);
    this.worker.onerror = (event) => this.fail(event.message || "the page's worker could not start");
    return this.worker;
  }

  private receive(answer: Answer): void {
    const asked = this.waiting.get(answer.id);
    if (!asked) return;
    this.waiting.delete(answer.id);
    computing.value = computing.peek() - 1;
    if (answer.error === undefined) asked.done(answer.body as never);
    else asked.failed(new Error(answer.error));
  }

  private fail(message: string): void {
    for (const { failed } of this.waiting.values()) failed(new Error(message));
    computing.value = computing.peek() - this.waiting.size;
    this.waiting.clear();
    this.worker?.terminate();
    this.worker = undefined;
  }
}

const pictures = new Desk();
const paths = new Desk();

export const delays = (start: bigint, count: number) => pictures.ask("window", { start, count });
export const sampled = (range: Range, count: number, log: boolean) => pictures.ask("sample", { range, count, log });
export const trajectory = (n: bigint) => paths.ask("walk", { n });
export const terms = (n: bigint, step: number, count: number) => paths.ask("terms", { n, step, count });
export const tableOf = (start: bigint, count: number) => paths.ask("table", { start, count });
