/** Alerts that this browser hides for some time; other users still see them. */

import { signal } from "@preact/signals";
import type { Alert } from "../../../lib/api";

const KEY = "silenced";

function readSilences(): Record<string, number> {
  try {
    const silences = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Record<string, number>;
    return Object.fromEntries(Object.entries(silences).filter(([, until]) => until > Date.now()));
  } catch {
    return {};
  }
}

const silences = signal(readSilences());

/** Silence an alert for `seconds`; 0 ends the silence. */
export function silenceAlert(id: string, seconds: number): void {
  const { [id]: _, ...others } = silences.value;
  silences.value = seconds ? { ...others, [id]: Date.now() + seconds * 1000 } : others;
  localStorage.setItem(KEY, JSON.stringify(silences.value));
}

/** Return the end of the silence in ms since 1970; 0 if the alert is not silenced. */
export function silencedUntil(id: string): number {
  const until = silences.value[id] ?? 0;
  return until > Date.now() ? until : 0;
}

export function isSilenced(id: string): boolean {
  return silencedUntil(id) > 0;
}

/** Count the firing alerts that are not silenced here. */
export function countFiring(alerts: readonly Alert[]): number {
  return alerts.filter((alert) => alert.state === "firing" && !isSilenced(alert.id)).length;
}
