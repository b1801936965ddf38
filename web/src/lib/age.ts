/** How old what a page shows is: it decides whether the page shows it in colour. Pure. */

export type Connection = "connecting" | "live" | "stale" | "reconnecting" | "offline" | "denied";

/**
 * live: as the cluster is now. old: nothing was heard for longer than a healthy cluster is silent. lost: the cluster is
 * not reached, and nobody knows what became of what is shown.
 */
export type Age = "live" | "old" | "lost";

/** A stream says something every 12 s at least. */
export const OLD_MS = 20_000;

/** The age of what came over the stream, last heard at `heard`; both in ms since 1970. */
export function ageOf(connection: Connection, heard: number, now: number): Age {
  if (connection === "reconnecting" || connection === "offline" || connection === "denied") return "lost";
  if (connection === "stale") return "old";
  return heard && now - heard > OLD_MS ? "old" : "live";
}
