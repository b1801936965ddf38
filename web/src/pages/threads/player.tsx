/** Playback of the replica at a chosen speed. */

import { formatMicroseconds } from "./model/log";
import { playbackRate, sliderPosition, speedAtPosition } from "../../timeline/clock";
import { Button } from "../../ui/button";
import { showToast } from "../../ui/toast";
import { loaded, togglePlay, isPlaying, resetView, seekTo, state, shownUntil, endTime } from "./model/state";

export function resetWithUndo(): void {
  const undo = resetView();
  showToast("Reset: showing the whole replica without range or selection", { text: "Undo", run: undo });
}

export function PlaybackControls() {
  if (!loaded.value) return null;
  const on = isPlaying.value;
  return (
    <div class="player row" role="group" aria-label="Playback">
      <Button class="primary" onClick={togglePlay}>
        {on ? "Pause" : "Play"}
      </Button>
      <Button onClick={resetWithUndo}>Reset</Button>
      <label class="row grow at">
        <span class="visually-hidden">Time of the replica</span>
        <input
          type="range"
          class="grow"
          min={0}
          max={1000}
          step={1}
          value={Math.round((1000 * shownUntil.value) / endTime.value)}
          aria-valuetext={formatMicroseconds(shownUntil.value)}
          onInput={(event) => seekTo((Number(event.currentTarget.value) / 1000) * endTime.value)}
        />
        <span class="num clock">{formatMicroseconds(shownUntil.value)}</span>
      </label>
      <label class="row speed">
        <span>speed</span>
        <input
          type="range"
          min={0}
          max={100}
          step={5}
          value={sliderPosition(state.speed.value)}
          aria-valuetext={`${formatMicroseconds(playbackRate(state.speed.value, endTime.value))} per second`}
          onInput={(event) => (state.speed.value = speedAtPosition(Number(event.currentTarget.value)))}
        />
        <span class="num">{formatMicroseconds(playbackRate(state.speed.value, endTime.value))} per s</span>
      </label>
    </div>
  );
}
