/** The threads page: a program on a simulated machine, all its replicas, and one of them in every detail. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { percent } from "../../lib/format";
import { keys } from "../../lib/keys";
import { snapshot } from "../../lib/live";
import { later } from "../../ui/later";
import { Page } from "../../ui/page";
import { Empty } from "../../ui/table";
import { Setup } from "./setup";
import { main, run, saving, say, state } from "./model/state";

const Desk = later(() => import("./desk").then((part) => part.Desk));
const SaveDialog = later(() => import("./save").then((part) => part.SaveDialog));

function titled(): void {
  const job = run.job.value;
  const active = job && ["queued", "running", "finishing"].includes(job.state);
  const lanes = snapshot.value.workers.filter((worker) => worker.live && worker.device !== "runner").length;
  document.title =
    `${active ? `${percent(job.progress)} on ${lanes} worker${lanes === 1 ? "" : "s"} - ` : ""}Threads ` +
    `- Threads Cluster`;
}

export function ThreadsPage() {
  useEffect(() => {
    say("Threads Cluster: a program of threads that spawn threads, on a simulated machine");
    return keys({ E: { text: "save and open files", run: () => (saving.value = true) } });
  }, []);
  useEffect(() => effect(titled), []);
  const { loaded, loading, problem } = main.value.value;
  const used = state.job.value || loaded || loading || problem;
  return (
    <Page current="threads">
      <h1 class="visually-hidden">Threads</h1>
      <Setup />
      {used ? <Desk /> : <Welcome />}
      {saving.value && <SaveDialog />}
    </Page>
  );
}

function Welcome() {
  return (
    <Empty title="One program, thousands of runs">
      <p>
        Start simulates a program whose threads spawn threads, on 1 to 64 cores under a policy, as often as you say.
        Then you see how long it takes and how that varies; every run can be opened here core by core.
      </p>
    </Empty>
  );
}
