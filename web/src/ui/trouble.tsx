/** A part of the page whose question failed, and what to do. */

import type { Problem } from "../lib/api";

export function Trouble({ what, problem, onRetry }: { what: string; problem: Problem; onRetry?: () => void }) {
  const missing = problem.status === 404 && !onRetry;
  if (missing) return <p class="soft">Not available: this coordinator has no {what}.</p>;
  return (
    <div class="trouble" role="alert">
      <p>
        <strong>{what} could not be read.</strong> {problem.detail}
        {problem.request && ` (request ${problem.request})`}
      </p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
