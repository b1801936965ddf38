/** Shortens foreign texts of any length. Pure functions. */

/** Return a text, cut after a line or two. */
export function truncate(text: string, maxLength = 400): string {
  return text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
}
