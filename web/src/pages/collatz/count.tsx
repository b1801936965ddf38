/** Offer to count all visible numbers with a job of the cluster. */

import { formatCompact, formatCount } from "../../lib/format";
import { cancelJob, watchJob } from "../../lib/jobs";
import { Button, TextButton } from "../../ui/button";
import { ProgressBar } from "../../ui/progress";
import { showError } from "../../ui/toast";
import { MAX_EXACT } from "./model/data";
import { describeDuration } from "./model/estimate";
import { countVisible, countingJob, MAX_WINDOW } from "./model/run";
import { clusterState } from "./model/cluster-state";
import type { Scene } from "./model/scene";
import { limits, metric, view } from "./model/state";
import { visibleRange } from "./model/view";

/** Button that starts the job, shown while the picture shows only a sample. */
export function CountButton({ picture }: { picture: Scene | undefined }) {
  const now = visibleRange(view.value, limits);
  const many = now.end - now.first;
  if (countingJob.value || picture?.source !== "sample" || metric.value !== "count") return null;
  if (many <= BigInt(MAX_EXACT) || many > MAX_WINDOW) return null;
  return (
    <Button title={`A job: ${describeDuration(many, clusterState.value)}`} onClick={() => void countVisible(now)}>
      Count all {formatCompact(many)}
    </Button>
  );
}

/** Progress of the counting job. */
export function CountProgress() {
  const id = countingJob.value;
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
