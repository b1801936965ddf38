/** Error message of a part of the page, with advice. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { UNHEALTHY_STATUSES, type Problem } from "../lib/api";
import { connection } from "../lib/live";
import { Button } from "./button";

/** Retry when the cluster is reachable again. */
function useReturn(problem: Problem, onRetry: (() => void) | undefined): void {
  useEffect(() => {
    if (!onRetry || !UNHEALTHY_STATUSES.includes(problem.status)) return;
    let away = connection.peek() !== "live";
    return effect(() => {
      const live = connection.value === "live";
      if (live && away) queueMicrotask(onRetry);
      away = !live;
    });
  }, [problem]);
}

export function Trouble({ what, problem, onRetry }: { what: string; problem: Problem; onRetry?: () => void }) {
  useReturn(problem, onRetry);
  const missing = problem.status === 404 && !onRetry;
  if (missing) return <p class="soft">Not available: this coordinator has no {what}.</p>;
  return (
    <div class="trouble" role="alert">
      <p>
        <strong>{what} could not be read.</strong> {problem.detail}
        {problem.request && ` (request ${problem.request})`}
      </p>
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}
