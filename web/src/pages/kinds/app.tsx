/** The page of all kinds, with a form, jobs and results for each kind. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { bindShortcuts } from "../../lib/keys";
import { formatPercent } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { EmptyMessage, LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { KindList } from "./list";
import { all, job, kind, kindName, load, missing, problem, show, state } from "./model/state";

const KindView = lazy(() => import("./kind").then((part) => part.KindView));

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
  if (problem.value) return <ErrorMessage subject="List of kinds" problem={problem.value} onRetry={load} />;
  if (missing.value && !kindName.value)
    return (
      <ErrorMessage subject={`Job ${state.job.value}`} problem={missing.value} onRetry={() => location.reload()} />
    );
  if (!all.value || (state.job.value && !kindName.value)) return <LoadingRows rows={8} />;
  if (!kindName.value) return <KindList kinds={all.value} />;
  if (kind.value) return <KindView kind={kind.value} key={kindName.value} />;
  return (
    <EmptyMessage title={`This cluster has no kind ${kindName.value}`}>
      <p>
        <TextButton onClick={() => show("")}>Show the available kinds</TextButton>
      </p>
    </EmptyMessage>
  );
}
