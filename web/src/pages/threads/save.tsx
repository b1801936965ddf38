/** Saves displayed data to files, and opens traces from files. */

import { useSignal } from "@preact/signals";
import { copyText, download } from "../../lib/export";
import { joinPieces, formatChromeTrace, formatCsv } from "./model/export";
import { formatMicroseconds } from "./model/log";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { offerPicture, type Picture } from "../../ui/picture";
import { showError, showToast } from "../../ui/toast";
import type { LoadedTrace } from "../../timeline/load";
import { drawWithName, pictureHeight } from "./lanes";
import { describeProgram } from "./setup";
import { loaded, openFile, otherLoaded, markedRange, isSaveDialogOpen, state, endTime } from "./model/state";

function fileNameOf(end: string): string {
  const trace = loaded.peek()?.trace;
  return `threads-${state.job.peek() || "example"}-replica-${trace?.replica ?? 0}.${end}`;
}

function createNote(): Record<string, unknown> {
  return {
    job: state.job.peek(),
    address: location.href,
    window_us: markedRange.peek() ? [markedRange.peek()?.t0, markedRange.peek()?.t1] : null,
  };
}

async function saveText(pieces: Iterable<string>, type: string, end: string): Promise<void> {
  try {
    download(fileNameOf(end), await joinPieces(pieces, type));
  } catch (error) {
    showError("The file could not be written", error);
  }
}

function schedulerName(scheduler: string): string {
  return scheduler.replaceAll("_", " ");
}

/** Width of a saved picture in pixels. */
const PICTURE_WIDTH = 1200;

/** Return the overview and lanes, for both policies of a comparison. */
function createPicture(opened: LoadedTrace): Picture {
  const all = [opened, ...(otherLoaded.peek() ? [otherLoaded.peek() as LoadedTrace] : [])];
  const { trace } = opened;
  const tall = (position: number) => pictureHeight(all[position] as LoadedTrace, position === 0) + 12;
  const schedulers = all.map(({ trace: { scheduler } }) => schedulerName(scheduler)).join(", ");
  return {
    title: `Threads on ${trace.cores} cores: ${schedulers}`,
    lines: [describeProgram(trace.parameters), `replica ${trace.replica}`],
    width: PICTURE_WIDTH,
    height: all.reduce((sum, _, position) => sum + tall(position), 0),
    draw: (context) => {
      for (const [position, each] of all.entries()) {
        drawWithName(context, PICTURE_WIDTH, each, position === 0);
        context.translate(0, tall(position));
      }
    },
  };
}

function offerLanesPicture(): void {
  const opened = loaded.peek();
  if (opened) offerPicture(fileNameOf("").slice(0, -1), createPicture(opened));
}

export function SaveDialog() {
  const busy = useSignal(false);
  const trace = loaded.value?.trace;
  const [t0, t1] = [markedRange.value?.t0 ?? 0, markedRange.value?.t1 ?? endTime.value];
  const act = (work: () => Promise<void> | void) => async () => {
    busy.value = true;
    await work();
    [busy.value, isSaveDialogOpen.value] = [false, false];
  };
  const open = async (file: File | undefined) => {
    if (!file) return;
    isSaveDialogOpen.value = false;
    await openFile(file);
  };
  return (
    <Dialog title="Save and open" onClose={() => (isSaveDialogOpen.value = false)}>
      {trace && (
        <p class="soft">
          {markedRange.value
            ? `The marked range, ${formatMicroseconds(t0)} to ${formatMicroseconds(t1)}`
            : "The whole replica"}
          , with its parameters and this address inside.
        </p>
      )}
      {trace && (
        <div class="stack">
          <Button
            disabled={busy.value}
            onClick={act(() => saveText(formatChromeTrace(trace, t0, t1, createNote()), "application/json", "json"))}
          >
            Perfetto JSON: for ui.perfetto.dev
          </Button>
          <Button disabled={busy.value} onClick={act(() => saveText(formatCsv(trace, t0, t1), "text/csv", "csv"))}>
            CSV: one row per slice
          </Button>
          <Button disabled={busy.value} onClick={act(offerLanesPicture)}>
            Picture: PNG or SVG
          </Button>
          <Button
            disabled={busy.value}
            onClick={act(() =>
              download(
                fileNameOf("parameters.json"),
                `${JSON.stringify(trace.parameters, null, 2)}\n`,
                "application/json",
              ),
            )}
          >
            Parameters: JSON for cluster submit
          </Button>
          <Button
            onClick={act(async () =>
              showToast(
                (await copyText(location.origin + state.link()))
                  ? "Address copied"
                  : "The browser does not allow this page to copy",
              ),
            )}
          >
            Copy the address of this view
          </Button>
        </div>
      )}
      <div class="field file">
        <label for="trace-file">Open a saved trace</label>
        <input
          id="trace-file"
          type="file"
          accept=".json,application/json"
          onChange={(event) => void open(event.currentTarget.files?.[0])}
        />
        <p class="hint">The file stays in this browser.</p>
      </div>
    </Dialog>
  );
}
