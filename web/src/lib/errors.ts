/** Return an error's message, prefixed with the name of a specific class, such as "TypeError: x is undefined". */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const named = !["Error", "Problem"].includes(error.name);
  return named || !error.message ? String(error) : error.message;
}
