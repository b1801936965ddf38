/** Dialog for a new job. */

import { jobAddress } from "../../kinds";
import { maySubmit } from "../../lib/api";
import { loadKinds } from "../../lib/jobs";
import type { Draft } from "../../lib/draft";
import { useRequest } from "../../ui/request";
import { Dialog } from "../../ui/dialog";
import { KindForm } from "../../ui/submission";
import { LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { closeForm, draft } from "./model/state";

export function SubmitDialog() {
  if (!draft.value) return null;
  return (
    <Dialog title="New job" class="broad" onClose={() => closeForm()}>
      <SubmitForm initialDraft={draft.value} />
    </Dialog>
  );
}

function SubmitForm({ initialDraft }: { initialDraft: Draft }) {
  const { value: listed, problem, repeat: again } = useRequest(loadKinds);
  if (problem) return <ErrorMessage subject="list of kinds" problem={problem} onRetry={again} />;
  if (!listed) return <LoadingRows rows={6} />;
  const allowed = listed.filter(({ type }) => maySubmit(type));
  const kind = allowed.find((each) => each.type === initialDraft.kind) ?? allowed[0];
  return kind ? (
    <KindForm
      key={kind.type}
      kinds={allowed}
      kind={kind}
      draft={initialDraft}
      onChange={(next) => (draft.value = next)}
      onSubmitted={(job) => {
        closeForm();
        location.assign(jobAddress(job));
      }}
    />
  ) : (
    <p>To submit jobs, log in with a token that has the scope submit. Programs also need the scope run.</p>
  );
}
