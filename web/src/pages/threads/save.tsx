/** Saves displayed data to files, and opens traces from files. */

import { useSignal } from "@preact/signals";
import { copyText, download } from "../../lib/export";
import { assembled, chromeTrace, csvPieces } from "./model/export";
import { us } from "./model/log";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { offerPicture, type Picture } from "../../ui/picture";
import { showError, showToast } from "../../ui/toast";
import type { LoadedTrace } from "../../timeline/load";
import { drawNamed, tallOf } from "./lanes";
import { described } from "./setup";
import { loaded, openFile, otherLoaded, range, saving, state, until } from "./model/state";

function nameOf(end: string): string {
  const trace = loaded.peek()?.trace;
  return `threads-${state.job.peek() || "example"}-replica-${trace?.replica ?? 0}.${end}`;
}

function note(): Record<string, unknown> {
  return {
    job: state.job.peek(),
    address: location.href,
    window_us: range.peek() ? [range.peek()?.t0, range.peek()?.t1] : null,
  };
}

async function saveText(pieces: Iterable<string>, type: string, end: string): Promise<void> {
  try {
    download(nameOf(end), await assembled(pieces, type));
  } catch (error) {
    showError("The file could not be written", error);
  }
}

function named(scheduler: string): string {
  return scheduler.replaceAll("_", " ");
}

/** Width of a saved picture in pixels. */
const WIDE = 1200;

/** Return the overview and lanes, for both policies of a comparison. */
function pictureOf(opened: LoadedTrace): Picture {
  const all = [opened, ...(otherLoaded.peek() ? [otherLoaded.peek() as LoadedTrace] : [])];
  const { trace } = opened;
  const tall = (place: number) => tallOf(all[place] as LoadedTrace, place === 0) + 12;
  return {
    title: `Threads on ${trace.cores} cores: ${all.map(({ trace: { scheduler } }) => named(scheduler)).join(", ")}`,
    lines: [described(trace.parameters), `replica ${trace.replica}`],
    width: WIDE,
    height: all.reduce((sum, _, place) => sum + tall(place), 0),
    draw: (context) => {
      for (const [place, each] of all.entries()) {
        drawNamed(context, WIDE, each, place === 0);
        context.translate(0, tall(place));
      }
    },
  };
}

function offerDrawn(): void {
  const opened = loaded.peek();
  if (opened) offerPicture(nameOf("").slice(0, -1), pictureOf(opened));
}

export function SaveDialog() {
  const busy = useSignal(false);
  const trace = loaded.value?.trace;
  const [t0, t1] = [range.value?.t0 ?? 0, range.value?.t1 ?? until.value];
  const act = (work: () => Promise<void> | void) => async () => {
    busy.value = true;
    await work();
    [busy.value, saving.value] = [false, false];
  };
  const open = async (file: File | undefined) => {
    if (!file) return;
    saving.value = false;
    await openFile(file);
  };
  return (
    <Dialog title="Save and open" onClose={() => (saving.value = false)}>
      {trace && (
        <p class="soft">
          {range.value ? `The marked range, ${us(t0)} to ${us(t1)}` : "The whole replica"}, with its parameters and this
          address inside.
        </p>
      )}
      {trace && (
        <div class="stack">
          <Button
            disabled={busy.value}
            onClick={act(() => saveText(chromeTrace(trace, t0, t1, note()), "application/json", "json"))}
          >
            Perfetto JSON: for ui.perfetto.dev
          </Button>
          <Button disabled={busy.value} onClick={act(() => saveText(csvPieces(trace, t0, t1), "text/csv", "csv"))}>
            CSV: one row per slice
          </Button>
          <Button disabled={busy.value} onClick={act(offerDrawn)}>
            Picture: PNG or SVG
          </Button>
          <Button
            disabled={busy.value}
            onClick={act(() =>
              download(nameOf("parameters.json"), `${JSON.stringify(trace.parameters, null, 2)}\n`, "application/json"),
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
