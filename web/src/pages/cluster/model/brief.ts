/** Texts of others, of whatever length. Pure. */

/** A text, or its beginning where it is longer than a line or two. */
export function brief(text: string, letters = 400): string {
  return text.length > letters ? `${text.slice(0, letters)}…` : text;
}
