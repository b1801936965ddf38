/** Error message of a part of the page, with advice. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { UNHEALTHY_STATUSES, type Problem } from "../lib/api";
import { connection } from "../lib/live";
import { Button } from "./button";

/** Retry when the cluster is reachable again. */
function useRetryOnReconnect(problem: Problem, onRetry: (() => void) | undefined): void {
  useEffect(() => {
    if (!onRetry || !UNHEALTHY_STATUSES.includes(problem.status)) return;
    let isAway = connection.peek() !== "live";
    return effect(() => {
      const live = connection.value === "live";
      if (live && isAway) queueMicrotask(onRetry);
      isAway = !live;
    });
  }, [problem]);
}

export function ErrorMessage({
  subject,
  problem,
  onRetry,
}: {
  subject: string;
  problem: Problem;
  onRetry?: () => void;
}) {
  useRetryOnReconnect(problem, onRetry);
  const isMissing = problem.status === 404 && !onRetry;
  if (isMissing) return <p class="soft">Not available: this coordinator has no {subject}.</p>;
  return (
    <div class="trouble" role="alert">
      <p>
        <strong>{subject} could not be read.</strong> {problem.detail}
        {problem.request && ` (request ${problem.request})`}
      </p>
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}
