/** A new job, in a dialog. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Problem, type Kind } from "../../lib/api";
import { kinds } from "../../lib/jobs";
import type { Draft } from "../../lib/submission";
import { Dialog } from "../../ui/dialog";
import { KindForm } from "../../ui/submission";
import { Skeleton } from "../../ui/table";
import { Trouble } from "../../ui/trouble";
import { closeForm, draft, open } from "./model/state";

export function SubmitDialog() {
  if (!draft.value) return null;
  return (
    <Dialog title="New job" class="broad" onClose={() => closeForm()}>
      <Form given={draft.value} />
    </Dialog>
  );
}

function Form({ given }: { given: Draft }) {
  const listed = useSignal<readonly Kind[] | undefined>(undefined);
  const trouble = useSignal<Problem | undefined>(undefined);
  const load = () => {
    trouble.value = undefined;
    kinds().then(
      (list) => (listed.value = list),
      (error: unknown) => (trouble.value = error instanceof Problem ? error : new Problem(0, "Failed", String(error))),
    );
  };
  useEffect(load, []);
  if (trouble.value) return <Trouble what="list of kinds" problem={trouble.value} onRetry={load} />;
  if (!listed.value) return <Skeleton rows={6} />;
  const kind = listed.value.find((each) => each.type === given.kind) ?? listed.value[0];
  return kind ? (
    <KindForm
      key={kind.type}
      kinds={listed.value}
      kind={kind}
      given={given}
      onChange={(next) => (draft.value = next)}
      onSubmitted={(job) => {
        closeForm();
        open(job);
      }}
    />
  ) : (
    <p>This cluster has no kind of job.</p>
  );
}
