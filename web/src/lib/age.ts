/** Age of the displayed data, which decides whether the page shows it in color. Pure functions. */

export type Connection = "connecting" | "live" | "stale" | "reconnecting" | "offline" | "denied";

/**
 * live: the data is current. old: nothing was received for longer than a healthy cluster is silent. lost: the cluster
 * is unreachable, so the current state is unknown.
 */
export type Age = "live" | "old" | "lost";

/** Maximum silence in milliseconds of a live stream, which sends something at least every 12 s. */
export const OLD_MS = 20_000;

/** Return the age of stream data, last received at `lastMessageAt`; both times are in ms since 1970. */
export function ageOf(connection: Connection, lastMessageAt: number, now: number): Age {
  if (connection === "reconnecting" || connection === "offline" || connection === "denied") return "lost";
  if (connection === "stale") return "old";
  return lastMessageAt && now - lastMessageAt > OLD_MS ? "old" : "live";
}
