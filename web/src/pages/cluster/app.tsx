/** The cluster page: Home and its other parts, which share one event stream and one set of keyboard shortcuts. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { PAGES } from "../../kinds";
import { canOnlyInfer } from "../../lib/api";
import { bindShortcuts, type Shortcuts } from "../../lib/keys";
import { connection } from "../../lib/live";
import { Button } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { Panel, Tabs } from "../../ui/tabs";
import { countFiring } from "./model/alert-silences";
import { Home } from "./home";
import { closeForm, openForm, draft, fleet, openTab, isPaused, tab, togglePause, type TabName } from "./model/state";

const Jobs = lazy(() => import("./jobs").then((part) => part.Jobs));
const Workers = lazy(() => import("./workers").then((part) => part.Workers));
const Gpus = lazy(() => import("./gpus").then((part) => part.Gpus));
const Hosts = lazy(() => import("./hosts").then((part) => part.Hosts));
const Services = lazy(() => import("./services").then((part) => part.Services));
const Monitoring = lazy(() => import("./monitoring").then((part) => part.Monitoring));
const Admin = lazy(() => import("./admin/admin").then((part) => part.Admin));
const Workflows = lazy(() => import("./workflows").then((part) => part.Workflows));
const SubmitDialog = lazy(() => import("./submit").then((part) => part.SubmitDialog), 0);

const PANELS: Record<TabName, () => preact.JSX.Element> = {
  overview: Home,
  gpus: () => <Gpus />,
  hosts: () => <Hosts />,
  workers: () => <Workers />,
  jobs: () => <Jobs />,
  workflows: () => <Workflows />,
  services: () => <Services />,
  monitoring: () => <Monitoring />,
  admin: () => <Admin />,
};

/** Parts with the tabs of one page, and the names of pages in the header. */
const MACHINES = ["hosts", "workers", "gpus"];
const PAGE_NAMES: Partial<Record<TabName, string>> = {
  overview: "home",
  ...Object.fromEntries(MACHINES.map((name) => [name, "machines"])),
};

/** Open the job list and focus its filter, which may still be loading. */
function focusFilter(): void {
  openTab("jobs");
  const focus = () => {
    const field = document.getElementById("filter");
    if (field) field.focus();
    else if (tab.peek() === "jobs") requestAnimationFrame(focus);
  };
  requestAnimationFrame(focus);
}

const SHORTCUTS: Shortcuts = {
  "g o": { text: "Home", run: () => openTab("overview") },
  "g j": { text: "jobs", run: () => openTab("jobs") },
  "g f": { text: "workflows", run: () => openTab("workflows") },
  "g s": { text: "services", run: () => openTab("services") },
  "g h": { text: "hosts", run: () => openTab("hosts") },
  "g w": { text: "workers", run: () => openTab("workers") },
  "g g": { text: "GPUs", run: () => openTab("gpus") },
  "g m": { text: "monitoring", run: () => openTab("monitoring") },
  "g a": { text: "admin", run: () => openTab("admin") },
  n: { text: "new job", run: () => openForm() },
  "/": { text: "filter the jobs", run: focusFilter },
  p: { text: "pause live updates, or resume", run: togglePause },
  Escape: { text: "close the open panel", run: () => closeForm() },
};

export function ClusterPage() {
  useLayoutEffect(() => bindShortcuts(SHORTCUTS), []);
  const at = canOnlyInfer.value ? "services" : tab.value;
  const current = PAGE_NAMES[at] ?? at;
  const title = PAGES.find(({ name }) => name === current)?.title ?? "";
  useEffect(
    () =>
      effect(() => {
        const count = countFiring(fleet.value.alerts);
        document.title =
          `${connection.value === "live" ? "" : `${connection.value} - `}${count ? `(${count}) ` : ""}${title} ` +
          `- Threads Cluster`;
      }),
    [title],
  );
  const CurrentPanel = PANELS[at];
  const firing = countFiring(fleet.value.alerts);
  return (
    <Page current={current} notes={{ monitoring: firing > 0 && <span class="bad num">{firing} firing</span> }}>
      <h1 class="visually-hidden">{title}</h1>
      {isPaused.value && (
        <p class="row bar-above">
          <Button onClick={togglePause}>Paused: resume</Button>
        </p>
      )}
      {MACHINES.includes(at) ? <Machines at={at} /> : <section id={`panel-${at}`}>{<CurrentPanel />}</section>}
      {draft.value && <SubmitDialog />}
    </Page>
  );
}

function Machines({ at }: { at: TabName }) {
  const { gpus, workers } = fleet.value;
  const CurrentPanel = PANELS[at];
  return (
    <>
      <Tabs
        label="Machines"
        current={at}
        onChange={(id) => openTab(id as TabName)}
        tabs={[
          { id: "hosts", title: "Hosts" },
          { id: "workers", title: "Workers", note: workers.filter((worker) => worker.live).length || "" },
          { id: "gpus", title: "GPUs", note: gpus.filter((gpu) => gpu.live).length || "" },
        ]}
      />
      <Panel id={at} class="machines">
        <CurrentPanel />
      </Panel>
    </>
  );
}
