/** Dialog for a new job. */

import { loadKinds } from "../../lib/jobs";
import type { Draft } from "../../lib/submission";
import { useAnswer } from "../../ui/answer";
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
  const { value: listed, problem, again } = useAnswer(loadKinds);
  if (problem) return <Trouble what="list of kinds" problem={problem} onRetry={again} />;
  if (!listed) return <Skeleton rows={6} />;
  const kind = listed.find((each) => each.type === given.kind) ?? listed[0];
  return kind ? (
    <KindForm
      key={kind.type}
      kinds={listed}
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
