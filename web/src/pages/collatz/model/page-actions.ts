/** Actions of buttons and keyboard shortcuts that affect the whole page. */

import { requestTable } from "./client";
import { download } from "../../../lib/export";
import { formatInteger } from "../../../lib/format";
import { isTouchScreen } from "../../../lib/theme";
import { askConfirmation } from "../../../ui/dialog";
import { showError, showToast } from "../../../ui/toast";
import { forgetDensities, restoreDensities, type CountedHistogram } from "./data";
import { formatLines, clearLines, lines, addLine, restoreLines, matchingLines } from "./events";
import { visibleRange, type Range } from "./view";
import { activeJobs, cancelRun, forgetRun, restoreRun } from "./run";
import { savablePictures } from "./savable-pictures";
import { fitView, limits, selectRange, selection, showView, state, tab, TABS, view } from "./state";

/** Maximum number of numbers in a CSV file. */
export const MAX_CSV_NUMBERS = 2 ** 20;
/** Number of rows per request to the web worker. */
const CSV_ROWS = 2 ** 14;

/** Forget the run's results and reset the picture. Running jobs are cancelled if the user agrees. */
export async function resetPage(): Promise<void> {
  if (activeJobs.peek().length) {
    const yes = await askConfirmation({
      title: "Reset while a job runs",
      text: "The run's jobs are cancelled, and the page starts over.",
      buttonLabel: "Cancel the jobs and reset",
      isDangerous: true,
    });
    if (!yes) return;
    await cancelRun();
  }
  const [known, run, kept] = [forgetDensities(), forgetRun(), clearLines()];
  const [x, span, sel] = [state.x.peek(), state.span.peek(), state.sel.peek()];
  fitView();
  selectRange(undefined);
  addLine("system", "reset");
  const undo = () => {
    restoreDensities(known);
    restoreRun(run);
    restoreLines(kept);
    [state.x.value, state.span.value, state.sel.value] = [x, span, sel];
  };
  showToast("The page is reset; finished jobs stay on the cluster", { text: "Undo", run: undo });
}

export function cycleView(): void {
  showView(TABS[(TABS.indexOf(tab.peek()) + 1) % TABS.length] ?? "graph");
}

function fileNameOf({ first, end }: Range, ending: string): string {
  return `collatz-${first}-${end - 1n}.${ending}`;
}

/** Save the selected or visible numbers as CSV with the columns Number,Steps,MaxValue. */
export async function saveNumbers(): Promise<void> {
  const range = selection.peek() ?? visibleRange(view.peek(), limits);
  const count = range.end - range.first;
  if (count > BigInt(MAX_CSV_NUMBERS)) {
    const how = isTouchScreen ? "Select, then drag" : "Shift and drag, or M";
    showToast(
      `A CSV holds at most ${formatInteger(MAX_CSV_NUMBERS)} numbers; this would be ${formatInteger(count)}. ` +
        `Select fewer (${how}), or save the histogram`,
    );
    return;
  }
  if (count > 100_000n) showToast(`Writing ${formatInteger(count)} numbers`);
  const parts = ["Number,Steps,MaxValue\r\n"];
  try {
    for (let at = range.first; at < range.end; at += BigInt(CSV_ROWS)) {
      const rest = Number(range.end - at);
      parts.push((await requestTable(at, Math.min(CSV_ROWS, rest))).text);
    }
  } catch (error) {
    return showError("CSV", error);
  }
  download(fileNameOf(range, "csv"), new Blob(parts, { type: "text/csv" }));
}

/** Save delays with their exact or estimated counts. */
export function saveHistogram({ range, histogram, source }: CountedHistogram): void {
  const rows = [...histogram]
    .sort(([left], [right]) => left - right)
    .map(([steps, count]) => `${steps},${Math.round(count)}\r\n`);
  download(
    `collatz-histogram-${range.first}-${range.end - 1n}.csv`,
    [source === "sample" ? "Steps,EstimatedNumbers\r\n" : "Steps,Numbers\r\n", ...rows].join(""),
    "text/csv",
  );
}

/** Save a view as PNG with its title and description. */
export async function savePicture(name: string = tab.peek()): Promise<void> {
  const picture = savablePictures.get(name)?.();
  if (!picture) {
    showToast("This view has no picture to save");
    return;
  }
  try {
    const { savePicture: write } = await import("../../../ui/picture-export");
    await write(`collatz-${name}`, picture, "png");
  } catch (error) {
    showError("The picture was not saved", error);
  }
}

export function saveLog(): void {
  const some = matchingLines.peek();
  const all = lines.peek();
  const head =
    `# Threads Cluster, Collatz, ${new Date().toISOString()}, ${some.length} of ${all.length} ` +
    `lines\n# ${location.href}\n`;
  download("collatz-log.txt", head + formatLines(some));
}

export function clearLog(): void {
  const before = clearLines();
  showToast("The log is empty", { text: "Undo", run: () => restoreLines(before) });
}
