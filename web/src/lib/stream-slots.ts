/** Limits the streams of a browser: it allows six HTTP/1.1 connections per host, and pages need some for requests. */

/** Maximum number of open streams in all tabs of a browser. */
export const STREAM_SLOTS = 4;

/** Return True if a connection can carry several requests at once. */
function canShareConnection(): boolean {
  const [page] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return page?.nextHopProtocol === "h2" || page?.nextHopProtocol === "h3";
}

/**
 * Run a function in one of the slots. Returns false immediately if other tabs use all slots. A closed tab releases its
 * slot. Browsers provide no locks for plain HTTP pages of other machines; each tab then acts on its own.
 */
export async function runInSlot(action: () => Promise<void>): Promise<boolean> {
  if (!navigator.locks || canShareConnection()) return action().then(() => true);
  for (let slot = 0; slot < STREAM_SLOTS; slot += 1) {
    const isAcquired = await navigator.locks.request(`stream-${slot}`, { ifAvailable: true }, async (lock) => {
      if (lock) await action();
      return lock !== null;
    });
    if (isAcquired) return true;
  }
  return false;
}
