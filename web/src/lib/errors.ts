/** The message of an error, after the name of its class where that is not Error: "TypeError: x is undefined". */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const named = !["Error", "Problem"].includes(error.name);
  return named || !error.message ? String(error) : error.message;
}
