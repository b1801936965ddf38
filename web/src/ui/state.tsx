/** A state, always displayed with text, shape and color together. */

import type { ComponentChildren } from "preact";

type Tone = "good" | "bad" | "warn" | "accent" | "soft";

const HOLLOW = <circle cx="6" cy="6" r="4.25" fill="none" stroke="currentColor" stroke-width="1.5" />;
const HALF = (
  <>
    {HOLLOW}
    <path d="M6 1.75a4.25 4.25 0 0 1 0 8.5z" fill="currentColor" />
  </>
);
const SOLID = <circle cx="6" cy="6" r="5" fill="currentColor" />;
const CROSS = <path d="M2 2l8 8M10 2l-8 8" stroke="currentColor" stroke-width="2" />;
const BAR = <path d="M1 6h10" stroke="currentColor" stroke-width="2.5" />;
const PAUSE = <path d="M3.5 1.5v9M8.5 1.5v9" stroke="currentColor" stroke-width="2.5" />;
const DASHED = (
  <circle cx="6" cy="6" r="4.25" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2 2" />
);
const CHEVRONS = <path d="M1.5 2l4 4-4 4M6.5 2l4 4-4 4" fill="none" stroke="currentColor" stroke-width="1.75" />;
const TRIANGLE = <path d="M6 1l5.5 10h-11z" fill="none" stroke="currentColor" stroke-width="1.5" />;

const STYLES: Record<string, [Tone, ComponentChildren]> = {
  // jobs
  blocked: ["soft", DASHED],
  queued: ["soft", HOLLOW],
  running: ["accent", HALF],
  finishing: ["accent", HALF],
  done: ["good", SOLID],
  failed: ["bad", CROSS],
  paused: ["warn", PAUSE],
  cancelling: ["warn", BAR],
  cancelled: ["soft", BAR],
  skipped: ["soft", CHEVRONS],
  deleted: ["soft", BAR],
  // workers
  starting: ["soft", DASHED],
  parked: ["soft", PAUSE],
  idle: ["good", HOLLOW],
  busy: ["accent", HALF],
  draining: ["warn", PAUSE],
  drained: ["soft", PAUSE],
  cordoned: ["warn", PAUSE],
  stopped: ["soft", BAR],
  lost: ["bad", CROSS],
  // actions of workflows
  waiting: ["soft", DASHED],
  approval: ["warn", TRIANGLE],
  // schedules
  active: ["good", HOLLOW],
  ended: ["soft", BAR],
  // services and their replicas
  ready: ["good", SOLID],
  unhealthy: ["bad", TRIANGLE],
  asleep: ["soft", PAUSE],
  stopping: ["warn", BAR],
  dead: ["bad", CROSS],
  // alerts and components of the cluster
  firing: ["bad", TRIANGLE],
  warning: ["warn", TRIANGLE],
  critical: ["bad", TRIANGLE],
  resolved: ["good", SOLID],
  up: ["good", SOLID],
  online: ["good", SOLID],
  down: ["bad", CROSS],
  // the connection
  connecting: ["soft", DASHED],
  live: ["good", SOLID],
  stale: ["warn", HALF],
  reconnecting: ["bad", DASHED],
  offline: ["bad", CROSS],
  denied: ["bad", BAR],
};

/** The shape alone; place its text next to it. */
export function StateIcon({ state: of }: { state: string }) {
  return (
    <svg viewBox="0 0 12 12" aria-hidden="true">
      {(STYLES[of] ?? STYLES.queued)?.[1]}
    </svg>
  );
}

export function StateLabel({ state: of, text }: { state: string; text?: string }) {
  return (
    <span class="state" data-tone={STYLES[of]?.[0] ?? "soft"}>
      <StateIcon state={of} />
      <span>{text ?? of}</span>
    </span>
  );
}
