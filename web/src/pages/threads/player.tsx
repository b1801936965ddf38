/** Playback of the replica at a chosen speed. */

import { us } from "./model/log";
import { playbackRate, sliderPosition, speedAtPosition } from "../../timeline/clock";
import { Button } from "../../ui/button";
import { showToast } from "../../ui/toast";
import { loaded, play, playing, reset, seekTo, state, told, until } from "./model/state";

export function resetWithUndo(): void {
  const undo = reset();
  showToast("Reset: showing the whole replica without range or selection", { text: "Undo", run: undo });
}

export function Player() {
  if (!loaded.value) return null;
  const on = playing.value;
  return (
    <div class="player row" role="group" aria-label="Playback">
      <Button class="primary" onClick={play}>
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
          value={Math.round((1000 * told.value) / until.value)}
          aria-valuetext={us(told.value)}
          onInput={(event) => seekTo((Number(event.currentTarget.value) / 1000) * until.value)}
        />
        <span class="num clock">{us(told.value)}</span>
      </label>
      <label class="row speed">
        <span>speed</span>
        <input
          type="range"
          min={0}
          max={100}
          step={5}
          value={sliderPosition(state.speed.value)}
          aria-valuetext={`${us(playbackRate(state.speed.value, until.value))} per second`}
          onInput={(event) => (state.speed.value = speedAtPosition(Number(event.currentTarget.value)))}
        />
        <span class="num">{us(playbackRate(state.speed.value, until.value))} per s</span>
      </label>
    </div>
  );
}
