/** Places for streams: a browser has six connections a host over HTTP/1.1, and its pages ask for more than streams. */

/** Streams that the tabs of one browser keep open at once. */
export const PLACES = 4;

/** True where a connection carries any number of requests. */
function shares(): boolean {
  const [page] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return page?.nextHopProtocol === "h2" || page?.nextHopProtocol === "h3";
}

/**
 * Acts in one of the places; false at once where other tabs have all of them. A tab that is closed gives its own back.
 * Browsers have no locks on pages over plain HTTP from another machine: there each tab acts as if it were alone.
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
