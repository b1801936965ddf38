/** The threads page: a program on a simulated machine, statistics of all replicas, and one replica in detail. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { formatPercent } from "../../lib/format";
import { bindShortcuts } from "../../lib/keys";
import { snapshot } from "../../lib/live";
import { lazy, firstPaint } from "../../ui/lazy";
import { Page } from "../../ui/page";
import EXAMPLE from "./example.json?url";
import { Setup } from "./setup";
import { mainTrace, run, isSaveDialogOpen, addMessage, showExample, state, type Example } from "./model/state";

const Workspace = lazy(() => import("./workspace").then((part) => part.Workspace));
const SaveDialog = lazy(() => import("./save").then((part) => part.SaveDialog));

function setTitle(): void {
  const job = run.job.value;
  const active = job && ["queued", "running", "finishing"].includes(job.state);
  const lanes = snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner").length;
  document.title =
    `${active ? `${formatPercent(job.progress)} on ${lanes} worker${lanes === 1 ? "" : "s"} - ` : ""}Threads ` +
    `- Threads Cluster`;
}

let exampleRequest: Promise<Example> | undefined;

/** Show the example if the URL names neither a job nor a file. */
function loadExample(): void {
  const { loaded, isLoading: loading, problem } = mainTrace.value.value;
  if (state.job.value || loaded || loading || problem) return;
  exampleRequest ??= fetch(EXAMPLE).then((answer) => answer.json() as Promise<Example>);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  showExample(exampleRequest, still).catch(() => (exampleRequest = undefined)); // the presets work without the example
}

export function ThreadsPage() {
  useEffect(() => {
    addMessage("Threads Cluster: a program of threads that spawn threads, on a simulated machine");
    return bindShortcuts({ E: { text: "save and open files", run: () => (isSaveDialogOpen.value = true) } });
  }, []);
  useEffect(() => effect(setTitle), []);
  useEffect(() => {
    void firstPaint.then(() => effect(loadExample));
  }, []);
  return (
    <Page current="threads">
      <h1 class="visually-hidden">Threads</h1>
      <Setup />
      {(state.job.value ||
        mainTrace.value.value.loaded ||
        mainTrace.value.value.isLoading ||
        mainTrace.value.value.problem) && <Workspace />}
      {isSaveDialogOpen.value && <SaveDialog />}
    </Page>
  );
}
