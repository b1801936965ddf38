import { beforeEach, expect, test } from "vitest";
import type { Job, Worker, Snapshot } from "../src/lib/api";
import {
  mergeJob,
  applyEvent,
  clockOffset,
  runningJobs,
  createModel,
  oldestWait,
  runSeconds,
  explainMissingSpeed,
  kindSpeeds,
  surplusJobs,
  applySnapshot,
  type ReceivedQueue,
  type FleetModel,
} from "../src/lib/fleet";
import { updatePace } from "../src/lib/pace";

function job(fields: Partial<Job> = {}): Job {
  return {
    tenant: "default",
    job_id: "a",
    type: "collatz",
    title: "Collatz",
    state: "running",
    priority: "normal",
    device: "any",
    queue: "any.normal",
    parameters: {},
    notes: [],
    created: "2026-01-01T00:00:00.000Z",
    started: null,
    ended: null,
    seconds: null,
    progress: 0,
    done: 0,
    total: 100,
    rate: null,
    eta_seconds: null,
    waiting_because: null,
    error: null,
    usage: { lane_seconds: 0, leases: 0, expired_leases: 0, workers: {} },
    ...fields,
  };
}

function frame(event: string, data: object, id = "") {
  return { event, id, data: JSON.stringify(data) };
}

function progress(done: number, id: string) {
  return frame("progress", { job: "a", kind: "collatz", type: "progress", state: "running", done, total: 100 }, id);
}

let model: FleetModel;

beforeEach(() => {
  model = createModel();
  applySnapshot(model, {
    stream: "1000-0",
    jobs: [job()],
    status: {},
    queues: [],
    workers: [],
    gpus: [],
    alerts: [],
    cursor: null,
  } as unknown as Snapshot);
});

test("progress moves a job, its speed and the time left", () => {
  applyEvent(model, progress(10, "2000-0"));
  expect(applyEvent(model, progress(30, "3000-0"))).toMatchObject({ job: "a" });
  expect(model.jobs.get("a")).toMatchObject({ done: 30, progress: 0.3, rate: 20, eta_seconds: 3.5 });
  expect(model.position).toBe("3000-0");
});

test("less done than known is old news", () => {
  applyEvent(model, progress(30, "3000-0"));
  expect(applyEvent(model, progress(20, "3100-0")).job).toBeUndefined();
  expect(model.jobs.get("a")?.done).toBe(30);
});

test("what the snapshot covers is history: it is listed, and changes nothing", () => {
  const old = applyEvent(
    model,
    frame("cancelled", { job: "a", type: "cancelled", state: "cancelled", done: 0, total: 100 }, "999-0"),
  );
  expect([old.event?.type, old.job, model.jobs.get("a")?.state]).toEqual(["cancelled", undefined, "running"]);
});

test("an end asks for the whole view, and an error stands at once", () => {
  const change = applyEvent(
    model,
    frame(
      "failed",
      { job: "a", type: "failed", state: "failed", done: 3, total: 100, error: "unit 4 kills" },
      "2000-0",
    ),
  );
  expect(change).toMatchObject({ job: "a", missingJob: "a" });
  expect(model.jobs.get("a")).toMatchObject({ state: "failed", error: "unit 4 kills", rate: null, eta_seconds: null });
});

test("a job that somebody deleted goes, and one that is not known is not asked for", () => {
  const deleted = (id: string) =>
    frame("deleted", { job: id, type: "deleted", state: "deleted", done: 1, total: 100 }, "9999-0");
  expect(applyEvent(model, deleted("a"))).toMatchObject({ deletedJob: "a", event: { type: "deleted" } });
  expect(model.jobs.has("a")).toBe(false);
  const unknown = applyEvent(model, deleted("z"));
  expect([unknown.event?.type, unknown.deletedJob, unknown.missingJob]).toEqual(["deleted", undefined, undefined]);
});

test("a job that is not known is asked for", () => {
  expect(
    applyEvent(model, frame("queued", { job: "b", type: "queued", state: "queued", done: 0, total: 1 }, "2000-0")),
  ).toMatchObject({ missingJob: "b" });
});

test("counts beyond 2^53 stay decimal strings", () => {
  applyEvent(
    model,
    frame("running", { job: "a", type: "running", state: "running", done: 0, total: "9007199254740993" }, "2000-0"),
  );
  expect(model.jobs.get("a")?.total).toBe("9007199254740993");
});

test("resync says so", () => expect(applyEvent(model, frame("resync", {}))).toEqual({ needsSnapshot: true }));

test("rows change in their places, are added at the end and go", () => {
  const worker = (id: string, more: object = {}) => frame("fleet", { id, live: true, job: null, ...more });
  applyEvent(model, worker("one"));
  applyEvent(model, worker("two"));
  expect(applyEvent(model, worker("one", { job: "a", gpus: [{ uuid: "g" }] }))).toMatchObject({ hasFleetChange: true });
  expect(model.workers.map((each: Worker) => each.id)).toEqual(["one", "two"]);
  expect(model.gpus).toEqual([{ uuid: "g", worker: "one", live: true, job: "a" }]);
  const runner = { device: "runner", job: "a", gpus: [{ uuid: "h", job: "b" }, { uuid: "i" }] };
  applyEvent(model, worker("two", runner));
  expect(model.gpus.map((gpu) => [gpu.uuid, gpu.worker, gpu.job])).toEqual([
    ["g", "one", "a"],
    ["h", "two", "b"],
    ["i", "two", null],
  ]);
  applyEvent(model, worker("two"));
  applyEvent(model, worker("one", { gone: true }));
  expect([model.workers.map((each) => each.id), model.gpus]).toEqual([["two"], []]);
});

test("a queue whose depth changed tells that jobs wait otherwise", () => {
  const queue = (jobs: number, wait: number) =>
    frame("queue", { queue: "any.normal", jobs, bells: 0, oldest_wait_seconds: wait });
  expect([
    applyEvent(model, queue(1, 0)).hasWaitingChange,
    applyEvent(model, queue(1, 5)).hasWaitingChange,
    applyEvent(model, queue(2, 6)).hasWaitingChange,
  ]).toEqual([true, false, true]);
});

test("the oldest wait is that of the queues' own rows, and goes on between them", () => {
  const queue = (jobs: number, wait: number) =>
    ({ jobs, oldest_wait_seconds: wait, receivedAt: 5000 }) as ReceivedQueue;
  const queues = [queue(2, 13), queue(1, 21), queue(0, 99)];
  expect([oldestWait([], 5000), oldestWait(queues, 5000), oldestWait(queues, 8500)]).toEqual([0, 21, 24.5]);
  // A disconnected page shows the wait at the time of its last message.
  expect(oldestWait(queues, 0)).toBe(21);
});

test("a worker that is free, full, drained or lost changes why jobs wait; one that beats does not", () => {
  model.jobs.set(
    "a",
    job({ state: "queued", waiting_because: "starts when a worker of the queue any.normal is free" }),
  );
  const worker = (fields: object) =>
    applyEvent(model, frame("fleet", { id: "w", live: true, lanes: 2, busy_lanes: 2, draining: false, ...fields }))
      .hasWaitingChange;
  expect(worker({})).toBe(true);
  expect(worker({ seen_seconds_ago: 0.3 })).toBe(false);
  expect(worker({ busy_lanes: 0 })).toBe(true);
  expect(worker({ busy_lanes: 1 })).toBe(false);
  expect(worker({ busy_lanes: 1, draining: true })).toBe(true);
  expect(worker({ live: false, draining: true })).toBe(true);
  model.jobs.set("a", job());
  expect(worker({ busy_lanes: 2 })).toBe(false);
});

test("jobs that are computed now, as far as is known, run and do not wait for their turn", () => {
  model.jobs.set("b", job({ job_id: "b", waiting_because: "1 job is before it" }));
  model.jobs.set("c", job({ job_id: "c", rate: 5, state: "done" }));
  expect(runningJobs(model)).toEqual(["a"]);
  // The job is running again.
  applyEvent(model, frame("progress", { job: "b", type: "progress", state: "running", done: 9, total: 100 }, "2000-0"));
  expect(runningJobs(model)).toEqual(["a", "b"]);
});

test("there is no speed without a live worker", () => {
  const status = { units_per_second: { collatz: 7 } };
  expect([kindSpeeds(status, 1), kindSpeeds(status, 0)]).toEqual([[["collatz", 7]], []]);
});

test("where no speed is shown, it says why", () => {
  expect(explainMissingSpeed({ jobs: {} }, 1)).toBe("no running jobs");
  expect(explainMissingSpeed({ jobs: { running: 0 } }, 0)).toBe("no running jobs");
  expect(explainMissingSpeed({ jobs: { running: 1 } }, 0)).toBe("no live worker");
  expect(explainMissingSpeed({ jobs: { running: 1 } }, 2)).toBe("not measured yet");
});

test("the time that a job has run goes on until its end", () => {
  const started = "2026-01-01T00:00:00.000Z";
  const at = Date.parse(started) + 90_000;
  expect(runSeconds(job(), at)).toBeNull();
  expect(runSeconds(job({ started, seconds: 3 }), at)).toBe(90);
  expect(runSeconds(job({ started, seconds: 95 }), at)).toBe(95);
  expect(runSeconds(job({ started, ended: "2026-01-01T00:00:04.000Z", seconds: 4 }), at)).toBe(4);
});

test("a job that runs tells the cluster's clock, others do not", () => {
  const started = "2026-01-01T00:00:00.000Z";
  const at = Date.parse(started);
  expect(clockOffset(job({ started, seconds: 90 }), at + 60_000)).toBe(30_000);
  expect(clockOffset(job({ started, ended: "2026-01-01T00:01:30.000Z", seconds: 90 }), at)).toBeUndefined();
  expect(clockOffset(job(), at)).toBeUndefined();
});

test("ended jobs beyond the limit go, oldest first; others never", () => {
  for (const [id, state, day] of [
    ["b", "done", 3],
    ["c", "done", 2],
    ["d", "failed", 1],
    ["e", "queued", 1],
  ] as const) {
    model.jobs.set(id, job({ job_id: id, state, created: `2026-01-0${day}T00:00:00.000Z` }));
  }
  expect(surplusJobs(model, () => false, 3)).toEqual(["d", "c"]);
  expect(surplusJobs(model, (id) => id === "d", 3)).toEqual(["c", "b"]);
  expect(surplusJobs(model, () => false, 5)).toEqual([]);
});

test("a pace smooths, and a count that fell begins anew", () => {
  let pace = updatePace(undefined, 0, 0);
  expect(pace.rate).toBeNull();
  pace = updatePace(pace, 100, 1000);
  expect(pace.rate).toBe(100);
  pace = updatePace(pace, 400, 2000);
  expect(pace.rate).toBeGreaterThan(100);
  expect(pace.rate).toBeLessThan(300);
  expect(updatePace(pace, 10, 3000)).toEqual({ done: 10, time: 3000, rate: null });
  expect(updatePace(pace, 500, 2000).rate).toBe(pace.rate);
});

test("a job keeps the page's own speed while the API has none, but not while it waits", () => {
  const before = job({ rate: 20 });
  expect(mergeJob(job(), before).rate).toBe(20);
  expect(mergeJob(job({ rate: 7 }), before).rate).toBe(7);
  expect(mergeJob(job({ waiting_because: "no live worker serves the queue" }), before).rate).toBeNull();
  expect(mergeJob(job({ state: "paused" }), before).rate).toBeNull();
  expect(mergeJob(job({ rate: 7, eta_seconds: 3 }), before, 0)).toMatchObject({ rate: null, eta_seconds: null });
});
