/** Limits the streams of a browser: it allows six HTTP/1.1 connections per host, and pages need some for requests. */

/** Maximum number of open streams in all tabs of a browser. */
export const PLACES = 4;

/** Return True if a connection can carry several requests at once. */
function shares(): boolean {
  const [page] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return page?.nextHopProtocol === "h2" || page?.nextHopProtocol === "h3";
}

/**
 * Run a function in one of the slots. Returns false immediately if other tabs use all slots. A closed tab releases its
 * slot. Browsers provide no locks for plain HTTP pages of other machines; each tab then acts on its own.
 */
export async function inPlace(act: () => Promise<void>): Promise<boolean> {
  if (!navigator.locks || shares()) return act().then(() => true);
  for (let place = 0; place < PLACES; place += 1) {
    const had = await navigator.locks.request(`stream-${place}`, { ifAvailable: true }, async (lock) => {
      if (lock) await act();
      return lock !== null;
    });
    if (had) return true;
  }
  return false;
}
