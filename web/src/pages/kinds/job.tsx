/** One job: its progress, actions and result. */

import { addressOf, clusterAddress, KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { isEnded } from "../../lib/fleet";
import { formatSeconds } from "../../lib/format";
import { createDraft } from "../../lib/draft";
import { jobTitle } from "../../lib/naming";
import { typedParameters, explainWait, jobWorkflowAddress } from "../../lib/summary";
import { Button } from "../../ui/button";
import { lazy } from "../../ui/lazy";
import { Outline } from "../../ui/outline";
import { Progress } from "../../ui/progress";
import { StateLabel } from "../../ui/state";
import { LoadingRows } from "../../ui/table";
import { ErrorMessage } from "../../ui/error-message";
import { openJob, storeDraft, missingProblem, showJob, state } from "./model/state";
import { ResultView } from "./result";

const Programs = lazy(() => import("./programs").then((part) => part.ProgramsView));

export function JobView() {
  const job = openJob.value;
  return (
    <section aria-label={`Job ${state.job.value}`} class="stack">
      {job ? (
        <JobBody job={job} />
      ) : missingProblem.value ? (
        <ErrorMessage
          subject={`Job ${state.job.value}`}
          problem={missingProblem.value}
          onRetry={() => location.reload()}
        />
      ) : (
        <LoadingRows rows={6} />
      )}
    </section>
  );
}

function JobBody({ job }: { job: Job }) {
  return (
    <>
      <Heading job={job} />
      <div class="ages">
        <Progress job={job} hasButtons unit="units" />
      </div>
      <Notes job={job} />
      {KINDS[job.type]?.hasPrograms && <Programs job={job} />}
      <ResultView job={job} />
      <details class="part">
        <summary>Parameters</summary>
        <Outline value={typedParameters(job.type, job.parameters)} label="Parameters" />
      </details>
    </>
  );
}

function Heading({ job: { job_id: id, type, state: name, seconds: ran }, job: shown }: { job: Job }) {
  const page = KINDS[type]?.page;
  return (
    <div class="row">
      <h2>{jobTitle(shown)}</h2>
      <span class="mono soft small">{id}</span>
      <StateLabel state={name} />
      {isEnded(shown) && ran !== null && <span class="num soft">{formatSeconds(ran)}</span>}
      {jobWorkflowAddress(id) && <a href={jobWorkflowAddress(id)}>Its workflow</a>}
      <span class="grow" />
      {page && (
        <a class="button" href={addressOf(type, id)}>
          Open in {page.title}
        </a>
      )}
      <a class="button" href={clusterAddress(id)}>
        Open in Cluster
      </a>
      <Button onClick={() => storeDraft(createDraft(shown))}>Copy into the form</Button>
      <Button class="plain" onClick={() => showJob("")}>
        Close
      </Button>
    </div>
  );
}

function Notes({ job }: { job: Job }) {
  const { error, notes, state: name, waiting_because: why } = job;
  return (
    <>
      {why && <p>{explainWait(job)}</p>}
      {name === "cancelling" && <p class="soft">The job is cancelled when its last lane has stopped.</p>}
      {error && (
        <p class="trouble" role="alert">
          {error}
        </p>
      )}
      {notes.map((note) => (
        <p class="soft" key={note}>
          {note}
        </p>
      ))}
    </>
  );
}
