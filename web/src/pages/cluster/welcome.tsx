/** Introduction for users without jobs: an example of each kind, to run with a click or a shell command. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { KINDS, canSubmit } from "../../kinds";
import { session, type Kind } from "../../lib/api";
import { loadKinds, submitJob } from "../../lib/jobs";
import { Button } from "../../ui/button";
import { showError, showToast } from "../../ui/toast";
import { formatCommand, parseParameters } from "./model/sample";
import { fleet } from "./model/state";
import { acceptsWork } from "./model/workers";

export function Welcome() {
  const list = useSignal<readonly Kind[]>([]);
  useEffect(() => {
    loadKinds().then(
      (all) => (list.value = all),
      () => undefined, // the page explains why the cluster does not answer
    );
  }, []);
  const shownKinds = Object.keys(KINDS).flatMap((name) => list.value.find(({ type }) => type === name) ?? []);
  if (!shownKinds.length) return null;
  return (
    <section class="welcome" aria-labelledby="welcome-title">
      <h2 id="welcome-title">No job has run on this cluster yet. Try one of these:</h2>
      <ul>
        {shownKinds.map((kind) => (
          <KindCard key={kind.type} kind={kind} />
        ))}
      </ul>
    </section>
  );
}

function KindCard({ kind: { type, summary, example } }: { kind: Kind }) {
  const busy = useSignal(false);
  const { hasPrograms: programs, page, exampleCommand: command = "" } = KINDS[type] ?? {};
  const parameters = programs ? example : parseParameters(command);
  const served = fleet.value.workers.some(
    (worker) => acceptsWork(worker) && (worker.device === "runner") === Boolean(programs),
  );
  // Programs need a logged-in user, regardless of the scopes of anonymous users.
  const allowed = canSubmit(type, session.value?.scopes ?? []) && !(programs && session.value?.token_id === null);
  const title = page?.title ?? "A program";
  const run = async () => {
    busy.value = true;
    try {
      await submitJob(type, parameters);
      showToast(`Submitted: ${title}`);
    } catch (error) {
      showError(title, error);
    }
    busy.value = false;
  };
  return (
    <li>
      <h3>{title}</h3>
      <p>{summary}</p>
      <pre>{formatCommand(type, parameters)}</pre>
      {!served && (
        <p class="small soft">
          {programs
            ? "The job waits until you start a runner: ./deploy-cluster.sh local"
            : "The job waits until you start a worker"}
        </p>
      )}
      {allowed ? (
        <div class="row">
          <Button class="primary" disabled={busy.value} onClick={() => void run()}>
            Run
          </Button>
        </div>
      ) : (
        session.value && <p class="small soft">This requires a token with the scope {programs ? "run" : "submit"}.</p>
      )}
    </li>
  );
}
