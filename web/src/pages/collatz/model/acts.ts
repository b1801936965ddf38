/** Actions of buttons and keys on the page as a whole. */

import { tableOf } from "./client";
import { download } from "../../../lib/export";
import { integer } from "../../../lib/format";
import { touch } from "../../../lib/theme";
import { confirm } from "../../../ui/dialog";
import { failed, toast } from "../../../ui/toast";
import { forgetAll, recall, type Counted } from "./data";
import { asText, clear, lines, log, restore, shown } from "./events";
import { seen, type Range } from "./view";
import { active, cancel, forget, recallRun } from "./run";
import { pictures } from "./save";
import { fit, limits, select, selection, show, state, tab, TABS, view } from "./state";

/** Numbers of a CSV at most. */
export const CSV_MOST = 2 ** 20;
/** Rows that the worker is asked for at a time. */
const CSV_ROWS = 2 ** 14;

/** Forgets what the run found and fits the picture; jobs that run are cancelled when the user agrees. */
export async function reset(): Promise<void> {
  if (active.peek().length) {
    const yes = await confirm({
      title: "Reset while a job runs",
      text: "The run's jobs are cancelled, and the page starts over.",
      act: "Cancel the jobs and reset",
      danger: true,
    });
    if (!yes) return;
    await cancel();
  }
  const [known, run, kept] = [forgetAll(), forget(), clear()];
  const [x, span, sel] = [state.x.peek(), state.span.peek(), state.sel.peek()];
  fit();
  select(undefined);
  log("system", "reset");
  const undo = () => {
    recall(known);
    recallRun(run);
    restore(kept);
    [state.x.value, state.span.value, state.sel.value] = [x, span, sel];
  };
  toast("The page is reset; finished jobs stay on the cluster", { text: "Undo", run: undo });
}

export function cycle(): void {
  show(TABS[(TABS.indexOf(tab.peek()) + 1) % TABS.length] ?? "graph");
}

function nameOf({ first, end }: Range, ending: string): string {
  return `collatz-${first}-${end - 1n}.${ending}`;
}

/** The numbers that are selected, or else seen, as Number,Steps,MaxValue. */
export async function saveNumbers(): Promise<void> {
  const range = selection.peek() ?? seen(view.peek(), limits);
  const count = range.end - range.first;
  if (count > BigInt(CSV_MOST)) {
    const how = touch ? "Select, then drag" : "Shift and drag, or M";
    toast(
      `A CSV holds at most ${integer(CSV_MOST)} numbers; this would be ${integer(count)}. ` +
        `Select fewer (${how}), or save the histogram`,
    );
    return;
  }
  if (count > 100_000n) toast(`Writing ${integer(count)} numbers`);
  const parts = ["Number,Steps,MaxValue\r\n"];
  try {
    for (let at = range.first; at < range.end; at += BigInt(CSV_ROWS)) {
      const rest = Number(range.end - at);
      parts.push((await tableOf(at, Math.min(CSV_ROWS, rest))).text);
    }
  } catch (error) {
    return failed("CSV", error);
  }
  download(nameOf(range, "csv"), new Blob(parts, { type: "text/csv" }));
}

/** Delays and how many numbers have them, or would by a sample. */
export function saveHistogram({ range, histogram, source }: Counted): void {
  const rows = [...histogram]
    .sort(([left], [right]) => left - right)
    .map(([steps, count]) => `${steps},${Math.round(count)}\r\n`);
  download(
    `collatz-histogram-${range.first}-${range.end - 1n}.csv`,
    [source === "sample" ? "Steps,EstimatedNumbers\r\n" : "Steps,Numbers\r\n", ...rows].join(""),
    "text/csv",
  );
}

/** Saves a view as PNG, with its title and what it shows in words. */
export async function savePicture(name: string = tab.peek()): Promise<void> {
  const picture = pictures.get(name)?.();
  if (!picture) {
    toast("This view has no picture to save");
    return;
  }
  try {
    const { savePicture: write } = await import("../../../ui/sheet");
    await write(`collatz-${name}`, picture, "png");
  } catch (error) {
    failed("The picture was not saved", error);
  }
}

export function saveLog(): void {
  const some = shown.peek();
  const all = lines.peek();
  const head =
    `# Threads Cluster, Collatz, ${new Date().toISOString()}, ${some.length} of ${all.length} ` +
    `lines\n# ${location.href}\n`;
  download("collatz-log.txt", head + asText(some));
}

export function clearLog(): void {
  const before = clear();
  toast("The log is empty", { text: "Undo", run: () => restore(before) });
}
