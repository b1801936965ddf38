/** The tab Configuration: the submitted parameters, and buttons that copy them or open the form. */

import type { ComponentChildren } from "preact";
import { formAddress, KINDS } from "../../kinds";
import type { Job } from "../../lib/api";
import { createDraft } from "../../lib/draft";
import { createSubmission } from "../../lib/submission";
import { typedParameters } from "../../lib/summary";
import { Outline } from "../../ui/outline";
import { CopyButtons } from "../../ui/submission";

export function Configuration({ job }: { job: Job }) {
  const rows: [string, ComponentChildren][] = [
    ["name", job.name],
    ["tags", job.tags?.join(", ")],
    ["kind", job.type],
    ["priority", job.priority],
    ["device", job.device],
    ["tenant", job.tenant],
  ];
  return (
    <>
      {!KINDS[job.type]?.isInternal && (
        <div class="row">
          <a class="button primary" href={formAddress(job.type, job.job_id)}>
            Edit and rerun
          </a>
          <CopyButtons submission={createSubmission(createDraft(job))} />
        </div>
      )}
      <section class="part">
        <h2>Submission</h2>
        <dl class="facts">
          {rows
            .filter(([, value]) => value)
            .map(([title, value]) => [<dt key={title}>{title}</dt>, <dd key={`${title}=`}>{value}</dd>])}
        </dl>
      </section>
      <section class="part">
        <h2>Parameters</h2>
        <Outline value={typedParameters(job.type, job.parameters)} label="Parameters" />
      </section>
    </>
  );
}
