import { expect, test } from "vitest";
import type { Job, Service, WorkflowSummary } from "../src/lib/api";
import { listAttention } from "../src/pages/cluster/model/attention";

const NOW = Date.parse("2026-11-29T12:00:00Z");
const job = (job_id: string, fields: Partial<Job>) =>
  ({ job_id, type: "command", title: job_id, ended: null, error: null, waiting_because: null, ...fields }) as Job;
const list = (jobs: Job[], workflows: unknown[] = [], services: unknown[] = []) =>
  listAttention(jobs, workflows as WorkflowSummary[], services as Service[], NOW, "#tab=hosts");
const names = (jobs: Job[]) => list(jobs).map(({ id }) => id);

test("failed jobs need attention for a day, the last one first", () => {
  const failed = (id: string, ended: string) => job(id, { state: "failed", ended });
  const jobs = [failed("old", "2026-11-28T11:00:00Z"), failed("a", "2026-11-29T10:00:00Z")];
  expect(names([...jobs, failed("b", "2026-11-29T11:00:00Z"), job("done", { state: "done" })])).toEqual(["b", "a"]);
});

test("queued jobs need attention if the cluster has no machine for them, but not if they wait for their turn", () => {
  const queued = (id: string, waiting_because: string | null) => job(id, { state: "queued", waiting_because });
  const starting = "no worker is ready yet, but some are starting; the job is next";
  expect(names([queued("a", "no runner has 2 GPUs"), queued("b", starting), queued("c", null)])).toEqual(["a"]);
});

test("each item has one action, which opens what it is about", () => {
  const failed = [
    job("1", { state: "failed", ended: "2026-11-29T11:00:00Z" }),
    job("2", { type: "collatz", state: "failed", ended: "2026-11-29T10:00:00Z" }),
  ];
  const workflows = [
    { workflow_id: "w1", name: "nightly", counts: { approval: 1 } },
    { workflow_id: "w2", name: "other", counts: { done: 2 } },
  ];
  const services = [
    { name: "chat", failures: 2, state: "crashing", last_failure: "exit code 1" },
    { name: "off", failures: 2, state: "stopped", last_failure: null },
  ];
  expect(list(failed, workflows, services).map(({ action, address }) => [action, address])).toEqual([
    ["Review", "/cluster.html#tab=workflows&workflow=w1"],
    ["Open service", "#tab=services&service=chat"],
    ["Open log", "/job.html#job=1"],
    ["Open job", "/job.html#job=2"],
  ]);
});
