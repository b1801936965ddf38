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
import {
  allKinds,
  openJob,
  openKind,
  kindName,
  fetchKinds,
  missingProblem,
  kindsProblem,
  showKind,
  state,
} from "./model/state";

const KindView = lazy(() => import("./kind").then((part) => part.KindView));

function setTitle(): void {
  const { state: at, progress } = openJob.value ?? { state: "", progress: 0 };
  const active = at === "running" || at === "finishing";
  document.title = `${active ? `${formatPercent(progress)} - ` : ""}${kindName.value || "Kinds"} - Threads Cluster`;
}

export function KindsPage() {
  useLayoutEffect(() => bindShortcuts({ L: { text: "list of all kinds", run: () => showKind("") } }), []);
  useEffect(fetchKinds, []);
  useEffect(() => effect(setTitle), []);
  return (
    <Page current="run">
      <PageBody />
    </Page>
  );
}

function PageBody() {
  if (kindsProblem.value)
    return <ErrorMessage subject="List of kinds" problem={kindsProblem.value} onRetry={fetchKinds} />;
  if (missingProblem.value && !kindName.value)
    return (
      <ErrorMessage
        subject={`Job ${state.job.value}`}
        problem={missingProblem.value}
        onRetry={() => location.reload()}
      />
    );
  if (!allKinds.value || (state.job.value && !kindName.value)) return <LoadingRows rows={8} />;
  if (!kindName.value) return <KindList kinds={allKinds.value} />;
  if (openKind.value) return <KindView kind={openKind.value} key={kindName.value} />;
  return (
    <EmptyMessage title={`This cluster has no kind ${kindName.value}`}>
      <p>
        <TextButton onClick={() => showKind("")}>Show the available kinds</TextButton>
      </p>
    </EmptyMessage>
  );
}
