/** What somebody sees who has run nothing yet: three things to run, each with one click or one line of a shell. */

import { useSignal } from "@preact/signals";
import { KINDS, type Sample } from "../../kinds";
import { submit } from "../../lib/jobs";
import { failed, toast } from "../../ui/toast";
import { lineOf } from "./model/sample";
import { fleet } from "./model/state";
import { takesWork } from "./model/workers";

function samples(): (Sample & { kind: string })[] {
  return Object.entries(KINDS).flatMap(([kind, { sample }]) => (sample ? [{ kind, ...sample }] : []));
}

export function Welcome() {
  return (
    <section class="welcome" aria-labelledby="welcome-title">
      <h2 id="welcome-title">Nothing has run here yet. Three things to run:</h2>
      <ul>
        {samples().map((sample) => (
          <Card key={sample.kind} sample={sample} />
        ))}
      </ul>
    </section>
  );
}

function Card({ sample: { kind, title, text, parameters } }: { sample: Sample & { kind: string } }) {
  const busy = useSignal(false);
  const programs = KINDS[kind]?.programs;
  const served = fleet.value.workers.some(
    (worker) => takesWork(worker) && (worker.device === "runner") === Boolean(programs),
  );
  const run = async () => {
    busy.value = true;
    try {
      await submit(kind, parameters);
      toast(`Submitted: ${title}`);
    } catch (error) {
      failed(title, error);
    }
    busy.value = false;
  };
  return (
    <li>
      <h3>{title}</h3>
      <p>{text}</p>
      <pre>{lineOf(kind, parameters)}</pre>
      {!served && (
        <p class="small soft">
          {programs
            ? "It waits until a runner is started: ./deploy-cluster.sh local --runner"
            : "It waits until a worker is started"}
        </p>
      )}
      <div class="row">
        <button type="button" class="primary" disabled={busy.value} onClick={() => void run()}>
          Run
        </button>
      </div>
    </li>
  );
}
