/** Parts of a page that are loaded when they are first shown. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { Button } from "./button";
import { Skeleton } from "./table";

/** Timeout in milliseconds for pages that are never painted because they are hidden. */
const UNSEEN_MS = 5000;

/** Resolves after the first content is painted, so that later downloads do not delay it. */
export const painted = new Promise<void>((done) => {
  new PerformanceObserver((seen, self) => {
    // The first paint may be only the background.
    if (!seen.getEntriesByName("first-contentful-paint").length) return;
    self.disconnect();
    done();
  }).observe({ type: "paint", buffered: true });
  setTimeout(done, UNSEEN_MS);
});

/**
 * Return a component that loads its code when first shown, with `rows` placeholder lines. After a failure, it shows
 * advice.
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
