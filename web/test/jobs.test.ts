import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { loadKinds, jobProblem, watchJob } from "../src/lib/jobs";
import { storeJob, connection, forgetJob } from "../src/lib/live";
import { Problem, type Job } from "../src/lib/api";

const requests: string[] = [];
let status = 404;

beforeEach(() => {
  vi.useFakeTimers();
  requests.length = 0;
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("fetch", async (path: string) => {
    requests.push(path);
    const body = status === 200 ? { job_id: path.split("/").at(-1), state: "done" } : { detail: `no ${path}` };
    const answer = new Response(JSON.stringify(body), { status });
    Object.defineProperty(answer, "url", { value: `http://127.0.0.1${path}` });
    return answer;
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const settled = () => vi.advanceTimersByTimeAsync(1);

test("a job that does not exist is asked for once, however often it is watched, and said to be missing", async () => {
  status = 404;
  for (let time = 0; time < 20; time += 1) watchJob("unknown").value;
  await settled();
  for (let time = 0; time < 20; time += 1) watchJob("unknown").value;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests).toEqual(["/api/jobs/unknown"]);
  expect(jobProblem("unknown").value?.status).toBe(404);
});

test("what many parts of a page need is asked for once", async () => {
  status = 200;
  const views = Array.from({ length: 5 }, () => watchJob("wanted"));
  const lists = Array.from({ length: 5 }, () => loadKinds());
  await settled();
  for (let time = 0; time < 5; time += 1) watchJob("wanted").value;
  await Promise.all([...lists, loadKinds()]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(views.map((view) => view.value?.job_id)).toEqual(Array(5).fill("wanted"));
  expect(requests.toSorted()).toEqual(["/api/job-types", "/api/jobs/wanted"]);
});

test("a job of which nobody could tell is asked for again once the cluster answers", async () => {
  status = 503;
  const job = watchJob("later");
  await settled();
  expect(jobProblem("later").value?.status).toBe(503);
  connection.value = "reconnecting";
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(1);
  status = 200;
  connection.value = "live";
  await vi.advanceTimersByTimeAsync(1000);
  expect([requests.length, job.value?.job_id, jobProblem("later").value]).toEqual([2, "later", undefined]);
});

test("a job that was deleted is missing, not awaited", async () => {
  const job = watchJob("doomed");
  storeJob({ job_id: "doomed", state: "done" } as Job);
  await vi.advanceTimersByTimeAsync(1000);
  expect(job.value?.state).toBe("done");
  forgetJob("doomed", new Problem(404, "Deleted", "job doomed was deleted"));
  expect([job.value, jobProblem("doomed").value?.detail]).toEqual([undefined, "job doomed was deleted"]);
  requests.length = 0;
  watchJob("doomed").value;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests).toEqual([]);
});
