// Shows what the cluster does, asked for every two seconds while somebody looks. Text only ever enters the page as text.

const INTERVAL_MS = 2000;
const at = (id) => document.getElementById(id);
const text = (tag, content, name = "") => Object.assign(document.createElement(tag), { textContent: content, className: name });

for (const [id, port] of [["grafana", 3001], ["prometheus", 9091]]) {
  at(id).href = `http://${location.hostname}:${port}/`;
}

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`/api/${path}`, { headers, cache: "no-store", signal: AbortSignal.timeout(10_000) });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail ?? `${answer.status} ${answer.statusText}`), { status: answer.status });
}

// Readers of screens hear every change of it, so it changes with the state only.
function say(state, words) {
  const line = at("connection");
  line.dataset.state = state;
  if (line.textContent !== words) line.textContent = words;
}

function fill(id, rows, none) {
  const body = at(id).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => text("td", cell)));
    return row;
  }));
  if (!rows.length) {
    body.insertRow().append(Object.assign(text("td", none, "none"), { colSpan: at(id).tHead.rows[0].cells.length }));
  }
}

function figures(pairs) {
  at("figures").replaceChildren(...pairs.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(text("dt", name), text("dd", value));
    return box;
  }));
}

const percent = (ratio) => `${Math.floor(100 * ratio)} %`;
const short = (number) => (number === null ? "" : Intl.NumberFormat("en", { notation: "compact" }).format(number));

function show(status, nodes, jobs) {
  figures([
    ["workers", status.cluster_size ? `${status.workers.live} of ${status.cluster_size}` : status.workers.live],
    ["lanes", status.lanes],
    ["waiting", status.jobs.queued],
    ["running", status.jobs.running],
    ["done", status.jobs.done],
    ["failed", status.jobs.failed],
    ["oldest wait", `${Math.round(status.oldest_wait_seconds)} s`],
    ["version", status.version],
  ]);
  fill("workers", nodes.map((node) => (node.live
    ? [node.id, node.device, node.state, `${node.busy_lanes} of ${node.lanes}`, node.job ?? "", percent(node.cpu_ratio)]
    : [node.id, node.device, `${node.state}, seen ${Math.round(node.seen_seconds_ago)} s ago`, "", "", ""]
  )), "no worker: ./deploy-cluster.sh status says more");
  fill("queues", Object.entries(status.queues), "nothing waits");
  fill("jobs", jobs.map((job) => [
    job.job_id, job.type, job.state, percent(job.progress), short(job.rate), job.seconds?.toFixed(1) ?? "",
    job.error ?? job.waiting_because ?? "",
  ]), "no jobs yet: cluster submit collatz --start-number 1 --number-count 1000000 --wait");
}

function reason(error) {
  if (error.name === "TimeoutError") return "the cluster did not answer within 10 s; trying again";
  return error.name === "TypeError" ? "the cluster does not answer; trying again" : error.message;
}

let timer;

async function round() {
  clearTimeout(timer);
  try {
    const [status, nodes, jobs] = await Promise.all([ask("status"), ask("nodes"), ask("jobs?limit=10")]);
    show(status, nodes.nodes, jobs.jobs);
    at("access").hidden = true;
    at("moment").textContent = new Date().toLocaleTimeString();
    at("content").classList.remove("old");
    say("live", "live");
  } catch (error) {
    at("access").hidden = error.status !== 401;
    at("content").classList.add("old");
    say("lost", reason(error));
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(round, INTERVAL_MS);
}

document.addEventListener("visibilitychange", () => document.hidden || round());
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value);
  at("token").value = "";
  round();
});
round();
