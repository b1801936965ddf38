/** Offer to count all visible numbers with a job of the cluster. */

import { formatCompact, formatCount } from "../../lib/format";
import { cancelJob, watchJob } from "../../lib/jobs";
import { Button, TextButton } from "../../ui/button";
import { ProgressBar } from "../../ui/progress";
import { showError } from "../../ui/toast";
import { EXACT_MOST } from "./model/data";
import { expectation } from "./model/estimate";
import { count, counting, WINDOW_MOST } from "./model/run";
import { situation } from "./model/situation";
import type { Scene } from "./model/scene";
import { limits, metric, view } from "./model/state";
import { seen } from "./model/view";

/** Button that starts the job, shown while the picture shows only a sample. */
export function CountThese({ picture }: { picture: Scene | undefined }) {
  const now = seen(view.value, limits);
  const many = now.end - now.first;
  if (counting.value || picture?.source !== "sample" || metric.value !== "count") return null;
  if (many <= BigInt(EXACT_MOST) || many > WINDOW_MOST) return null;
  return (
    <Button title={`A job: ${expectation(many, situation.value)}`} onClick={() => void count(now)}>
      Count all {formatCompact(many)}
    </Button>
  );
}

/** Progress of the counting job. */
export function Counting() {
  const id = counting.value;
  const job = id ? watchJob(id).value : undefined;
  if (!job) return null;
  const stop = () => void cancelJob(id).catch((error: unknown) => showError(`Cancel ${id}`, error));
  return (
    <div class="missing note counting" role="status">
      <a href={`/cluster.html#tab=jobs&job=${id}`}>A job</a> counts {formatCount(job.total, "number")}{" "}
      <ProgressBar ratio={job.progress} label={`job ${id}`} />
      <TextButton onClick={stop}>Cancel</TextButton>
    </div>
  );
}
