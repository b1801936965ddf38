/** The page of all kinds, with a form, jobs and results for each kind. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { bindShortcuts } from "../../lib/keys";
import { formatPercent } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { later } from "../../ui/later";
import { Page } from "../../ui/page";
import { Empty, Skeleton } from "../../ui/table";
import { Trouble } from "../../ui/trouble";
import { KindList } from "./list";
import { all, job, kind, kindName, load, missing, problem, show, state } from "./model/state";

const KindView = later(() => import("./kind").then((part) => part.KindView));

function titled(): void {
  const { state: at, progress } = job.value ?? { state: "", progress: 0 };
  const active = at === "running" || at === "finishing";
  document.title = `${active ? `${formatPercent(progress)} - ` : ""}${kindName.value || "Kinds"} - Threads Cluster`;
}

export function KindsPage() {
  useLayoutEffect(() => bindShortcuts({ L: { text: "list of all kinds", run: () => show("") } }), []);
  useEffect(load, []);
  useEffect(() => effect(titled), []);
  return (
    <Page current="kinds">
      <Body />
    </Page>
  );
}

function Body() {
  if (problem.value) return <Trouble what="List of kinds" problem={problem.value} onRetry={load} />;
  if (missing.value && !kindName.value)
    return <Trouble what={`Job ${state.job.value}`} problem={missing.value} onRetry={() => location.reload()} />;
  if (!all.value || (state.job.value && !kindName.value)) return <Skeleton rows={8} />;
  if (!kindName.value) return <KindList kinds={all.value} />;
  if (kind.value) return <KindView kind={kind.value} key={kindName.value} />;
  return (
    <Empty title={`This cluster has no kind ${kindName.value}`}>
      <p>
        <TextButton onClick={() => show("")}>Show the available kinds</TextButton>
      </p>
    </Empty>
  );
}
