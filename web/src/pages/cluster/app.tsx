/** The cluster page: eight tabs that share one event stream and one set of keyboard shortcuts. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { connection } from "../../lib/live";
import { Button } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { Panel, Tabs } from "../../ui/tabs";
import { performAction } from "./model/job-actions";
import { countFiring } from "./model/alert-silences";
import { focusRow, Jobs, targetJob, focusedJob, moveRow } from "./jobs";
import { Overview } from "./overview";
import {
  canOnlyInfer,
  closeForm,
  openForm,
  draft,
  fleet,
  openTab,
  openJob,
  isPaused,
  selectJob,
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

function goToJobs(action: () => void): void {
  if (tab.peek() === "jobs") {
    action();
    return;
  }
  openTab("jobs");
  requestAnimationFrame(() => requestAnimationFrame(action));
}

function performOnJob(verb: "cancel" | "retry"): void {
  const id = targetJob();
  if (id) void performAction(verb, [id]);
}

const SHORTCUTS: Shortcuts = {
  "g o": { text: "overview", run: () => openTab("overview") },
  "g g": { text: "GPUs", run: () => openTab("gpus") },
  "g h": { text: "hosts", run: () => openTab("hosts") },
  "g w": { text: "workers", run: () => openTab("workers") },
  "g j": { text: "jobs", run: () => openTab("jobs") },
  "g f": { text: "workflows", run: () => openTab("workflows") },
  "g s": { text: "services", run: () => openTab("services") },
  "g m": { text: "monitoring", run: () => openTab("monitoring") },
  j: { text: "next job", run: () => goToJobs(() => moveRow(1)) },
  k: { text: "previous job", run: () => goToJobs(() => moveRow(-1)) },
  Enter: { text: "open the row's job", run: () => focusedJob() && openJob(focusedJob() ?? "") },
  x: { text: "select the row's job, or deselect it", run: () => ((id) => id && selectJob(id))(focusedJob()) },
  c: { text: "cancel the job, after a confirmation", run: () => performOnJob("cancel") },
  r: { text: "retry the job", run: () => performOnJob("retry") },
  n: { text: "new job", run: () => openForm() },
  "/": { text: "filter the jobs", run: () => goToJobs(() => document.getElementById("filter")?.focus()) },
  p: { text: "pause live updates, or resume", run: togglePause },
  Escape: {
    text: "close the open panel",
    run: () => (draft.peek() ? closeForm() : state.job.peek() ? openJob("") : focusRow(0)),
  },
};

export function ClusterPage() {
  useLayoutEffect(() => bindShortcuts(SHORTCUTS), []);
  useEffect(
    () =>
      effect(() => {
        const count = countFiring(fleet.value.alerts);
        document.title =
          `${connection.value === "live" ? "" : `${connection.value} - `}${count ? `(${count}) ` : ""}Cluster ` +
          `- Threads Cluster`;
      }),
    [],
  );
  const { gpus, workers, alerts, status } = fleet.value;
  const at = canOnlyInfer.value ? "services" : tab.value;
  const CurrentPanel = PANELS[at];
  const running = status ? (status.jobs.running ?? 0) + (status.jobs.queued ?? 0) : 0;
  return (
    <Page current="cluster">
      <h1 class="visually-hidden">Cluster</h1>
      <div class="row tab-row">
        <div class="grow">
          <Tabs
            label="Parts of the cluster"
            current={at}
            onChange={(id) => openTab(id as TabName)}
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
                note: countFiring(alerts) ? (
                  <span class="bad">
                    {countFiring(alerts)}
                    <span class="roomy"> firing</span>
                  </span>
                ) : (
                  ""
                ),
              },
            ].filter(({ id }) => id === at || !canOnlyInfer.value)}
          />
        </div>
        {isPaused.value && <Button onClick={togglePause}>Paused: resume</Button>}
        {at !== "jobs" && !canOnlyInfer.value && (
          <Button class="new" onClick={() => openForm()}>
            New job
          </Button>
        )}
      </div>
      <Panel id={at}>
        <CurrentPanel />
      </Panel>
      {draft.value && <SubmitDialog />}
    </Page>
  );
}
