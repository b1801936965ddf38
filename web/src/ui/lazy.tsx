/** Parts of a page that are loaded when they are first shown. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { Button } from "./button";
import { LoadingRows } from "./table";

/** Timeout in milliseconds for pages that are never painted because they are hidden. */
const PAINT_TIMEOUT_MS = 5000;

/** Resolves after the first content is painted, so that later downloads do not delay it. */
export const firstPaint = new Promise<void>((resolve) => {
  new PerformanceObserver((seen, self) => {
    // The first paint may be only the background.
    if (!seen.getEntriesByName("first-contentful-paint").length) return;
    self.disconnect();
    resolve();
  }).observe({ type: "paint", buffered: true });
  setTimeout(resolve, PAINT_TIMEOUT_MS);
});

/**
 * Return a component that loads its code when first shown, with `rows` placeholder lines. After a failure, it shows
 * advice.
 */
export function lazy<Props extends object>(
  fetch: () => Promise<FunctionComponent<Props>>,
  rows = 8,
): FunctionComponent<Props> {
  const part = signal<FunctionComponent<Props> | undefined>(undefined);
  const hasFailed = signal(false);
  const load = () => {
    hasFailed.value = false;
    firstPaint.then(fetch).then(
      (component) => (part.value = component),
      () => (hasFailed.value = true),
    );
  };
  return function LazyComponent(props: Props) {
    useEffect(() => void (part.peek() ?? load()), []);
    const Part = part.value;
    if (Part) return <Part {...props} />;
    if (!hasFailed.value) return <LoadingRows rows={rows} />;
    return (
      <p class="trouble" role="alert">
        This part of the page could not be loaded. <Button onClick={load}>Try again</Button>, or reload the page if the
        cluster was upgraded meanwhile.
      </p>
    );
  };
}
