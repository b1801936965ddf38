/** The page Run: all kinds, with a form and recent jobs for each kind. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { bindShortcuts } from "../../lib/keys";
import { TextButton } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Page } from "../../ui/page";
import { EmptyMessage, LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { KindList } from "./list";
import { allKinds, openKind, copyParameters, kindName, fetchKinds, kindsProblem, showKind } from "./model/state";

const KindView = lazy(() => import("./kind").then((part) => part.KindView));

function setTitle(): void {
  document.title = `${kindName.value || "Run"} - Threads Cluster`;
}

export function KindsPage() {
  useLayoutEffect(() => bindShortcuts({ L: { text: "list of all kinds", run: () => showKind("") } }), []);
  useEffect(fetchKinds, []);
  useEffect(() => effect(copyParameters), []);
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
  if (!allKinds.value) return <LoadingRows rows={8} />;
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
