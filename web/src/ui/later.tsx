/** Parts of a page that are fetched when they are first shown. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { Button } from "./button";
import { Skeleton } from "./table";

/** Milliseconds after which a page that nobody sees goes on without having been painted. */
const UNSEEN_MS = 5000;

/** Resolves once the first content is on the screen: what is fetched before would hold that up. */
export const painted = new Promise<void>((done) => {
  new PerformanceObserver((seen, self) => {
    // The first paint may be the background alone.
    if (!seen.getEntriesByName("first-contentful-paint").length) return;
    self.disconnect();
    done();
  }).observe({ type: "paint", buffered: true });
  setTimeout(done, UNSEEN_MS);
});

/**
 * A component that fetches itself; meanwhile `rows` lines stand in its place. After a failure the page says what to do.
 */
export function later<Props extends object>(
  fetch: () => Promise<FunctionComponent<Props>>,
  rows = 8,
): FunctionComponent<Props> {
  const part = signal<FunctionComponent<Props> | undefined>(undefined);
  const lost = signal(false);
  const ask = () => {
    lost.value = false;
    painted.then(fetch).then(
      (component) => (part.value = component),
      () => (lost.value = true),
    );
  };
  return function Later(props: Props) {
    useEffect(() => void (part.peek() ?? ask()), []);
    const Part = part.value;
    if (Part) return <Part {...props} />;
    if (!lost.value) return <Skeleton rows={rows} />;
    return (
      <p class="trouble" role="alert">
        This part of the page could not be loaded. <Button onClick={ask}>Try again</Button>, or reload the page if the
        cluster was upgraded meanwhile.
      </p>
    );
  };
}
