// Shows what the cluster does, asked for every two seconds. Text only ever enters the page as text.

const INTERVAL_MS = 2000;
const at = (id) => document.getElementById(id);
const text = (tag, content, name = "") => Object.assign(document.createElement(tag), { textContent: content, className: name });

for (const [id, port] of [["grafana", 3001], ["prometheus", 9091]]) {
  at(id).href = `${location.protocol}//${location.hostname}:${port}/`;
}

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`/api/${path}`, { headers, cache: "no-store", signal: AbortSignal.timeout(10_000) });
  at("access").hidden = answer.status !== 401;
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.detail ?? `${answer.status} ${answer.statusText}`);
  }
  return answer.json();
}

function say(state, words) {
  at("connection").dataset.state = state;
  at("connection").textContent = words;
}

function fill(id, rows, none) {
  const body = at(id).tBodies[0];
  const columns = at(id).tHead.rows[0].cells.length;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => text("td", cell)));
    return row;
  }));
  if (!rows.length) {
    const cell = Object.assign(text("td", none, "none"), { colSpan: columns });
    body.append(document.createElement("tr"));
    body.rows[0].append(cell);
  }
}

function figures(pairs) {
  at("figures").replaceChildren(...pairs.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(text("dt", name), text("dd", value));
    return box;
  }));
}

const percent = (ratio) => `${Math.round(100 * ratio)} %`;
const short = (number) => (number === null ? "" : Intl.NumberFormat("en", { notation: "compact" }).format(number));

function show(status, nodes, jobs) {
  const live = nodes.filter((node) => node.live);
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
  fill("workers", live.map((node) => [
    node.id, node.device, node.state, `${node.busy_lanes} of ${node.lanes}`, node.job ?? "", percent(node.cpu_ratio),
  ]), "no worker lives: ./deploy-cluster.sh status says more");
  fill("queues", Object.entries(status.queues), "nothing waits");
  fill("jobs", jobs.map((job) => [
    job.job_id, job.type, job.state, percent(job.progress), short(job.rate), job.seconds?.toFixed(1) ?? "",
  ]), "no jobs yet: cluster submit collatz --start-number 1 --number-count 1000000 --wait");
}

async function round() {
  try {
    const [status, nodes, jobs] = await Promise.all([ask("status"), ask("nodes"), ask("jobs?limit=10")]);
    show(status, nodes.nodes, jobs.jobs);
    say("live", `live, ${new Date().toLocaleTimeString()}`);
  } catch (error) {
    say("lost", error.name === "TypeError" ? "the cluster does not answer; trying again" : error.message);
  }
  setTimeout(round, INTERVAL_MS);
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value);
});
round();
