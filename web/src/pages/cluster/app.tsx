/** The cluster page: eight tabs that share one event stream and one set of keyboard shortcuts. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { connection } from "../../lib/live";
import { Button } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { Panel, Tabs } from "../../ui/tabs";
import { perform } from "./model/acts";
import { firing } from "./model/silence";
import { focusRow, Jobs, meant, focused, moveRow } from "./jobs";
import { Overview } from "./overview";
import {
  asksOnly,
  closeForm,
  compose,
  draft,
  fleet,
  go,
  open,
  paused,
  select,
  state,
  tab,
  togglePause,
  type TabName,
} from "./model/state";
import { Workers } from "./workers";

const Gpus = lazy(() => import("./gpus").then((part) => part.Gpus));
const Hosts = lazy(() => import("./hosts").then((part) => part.Hosts));
const Services = lazy(() => import("./services").then((part) => part.Services));
const Monitoring = lazy(() => import("./monitoring").then((part) => part.Monitoring));
const Workflows = lazy(() => import("./workflows").then((part) => part.Workflows));
const SubmitDialog = lazy(() => import("./submit").then((part) => part.SubmitDialog), 0);

const PANELS: Record<TabName, () => preact.JSX.Element> = {
  overview: Overview,
  gpus: () => <Gpus />,
  hosts: () => <Hosts />,
  workers: Workers,
  jobs: Jobs,
  workflows: () => <Workflows />,
  services: () => <Services />,
  monitoring: () => <Monitoring />,
};

function toJobs(then: () => void): void {
  if (tab.peek() === "jobs") {
    then();
    return;
  }
  go("jobs");
  requestAnimationFrame(() => requestAnimationFrame(then));
}

function act(verb: "cancel" | "retry"): void {
  const id = meant();
  if (id) void perform(verb, [id]);
}

const KEYS: Shortcuts = {
  "g o": { text: "overview", run: () => go("overview") },
  "g g": { text: "GPUs", run: () => go("gpus") },
  "g h": { text: "hosts", run: () => go("hosts") },
  "g w": { text: "workers", run: () => go("workers") },
  "g j": { text: "jobs", run: () => go("jobs") },
  "g f": { text: "workflows", run: () => go("workflows") },
  "g s": { text: "services", run: () => go("services") },
  "g m": { text: "monitoring", run: () => go("monitoring") },
  j: { text: "next job", run: () => toJobs(() => moveRow(1)) },
  k: { text: "previous job", run: () => toJobs(() => moveRow(-1)) },
  Enter: { text: "open the row's job", run: () => focused() && open(focused() ?? "") },
  x: { text: "select the row's job, or deselect it", run: () => ((id) => id && select(id))(focused()) },
  c: { text: "cancel the job, after a confirmation", run: () => act("cancel") },
  r: { text: "retry the job", run: () => act("retry") },
  n: { text: "new job", run: () => compose() },
  "/": { text: "filter the jobs", run: () => toJobs(() => document.getElementById("filter")?.focus()) },
  p: { text: "pause live updates, or resume", run: togglePause },
  Escape: {
    text: "close the open panel",
    run: () => (draft.peek() ? closeForm() : state.job.peek() ? open("") : focusRow(0)),
  },
};

export function ClusterPage() {
  useLayoutEffect(() => bindShortcuts(KEYS), []);
  useEffect(
    () =>
      effect(() => {
        const count = firing(fleet.value.alerts);
        document.title =
          `${connection.value === "live" ? "" : `${connection.value} - `}${count ? `(${count}) ` : ""}Cluster ` +
          `- Threads Cluster`;
      }),
    [],
  );
  const { gpus, workers, alerts, status } = fleet.value;
  const at = asksOnly.value ? "services" : tab.value;
  const Shown = PANELS[at];
  const running = status ? (status.jobs.running ?? 0) + (status.jobs.queued ?? 0) : 0;
  return (
    <Page current="cluster">
      <h1 class="visually-hidden">Cluster</h1>
      <div class="row tab-row">
        <div class="grow">
          <Tabs
            label="Parts of the cluster"
            current={at}
            onChange={(id) => go(id as TabName)}
            tabs={[
              { id: "overview", title: "Overview" },
              { id: "gpus", title: "GPUs", note: gpus.filter((gpu) => gpu.live).length || "" },
              { id: "hosts", title: "Hosts" },
              { id: "workers", title: "Workers", note: workers.filter((worker) => worker.live).length || "" },
              { id: "jobs", title: "Jobs", note: running || "" },
              { id: "workflows", title: "Workflows" },
              { id: "services", title: "Services" },
              {
                id: "monitoring",
                title: "Monitoring",
                note: firing(alerts) ? (
                  <span class="bad">
                    {firing(alerts)}
                    <span class="roomy"> firing</span>
                  </span>
                ) : (
                  ""
                ),
              },
            ].filter(({ id }) => id === at || !asksOnly.value)}
          />
        </div>
        {paused.value && <Button onClick={togglePause}>Paused: resume</Button>}
        {at !== "jobs" && !asksOnly.value && (
          <Button class="new" onClick={() => compose()}>
            New job
          </Button>
        )}
      </div>
      <Panel id={at}>
        <Shown />
      </Panel>
      {draft.value && <SubmitDialog />}
    </Page>
  );
}
