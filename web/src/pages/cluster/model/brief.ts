/** Shortens foreign texts of any length. Pure functions. */

/** Return a text, cut after a line or two. */
export function brief(text: string, letters = 400): string {
  return text.length > letters ? `${text.slice(0, letters)}…` : text;
}
