/** The line of a shell that submits what a button submits. Pure. */

/** A word as a shell takes it. */
function word(text: string): string {
  return /^[\w@%+=:,./{}-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** `cluster submit KIND --name value -- words of the program`. */
export function lineOf(kind: string, parameters: Readonly<Record<string, unknown>>): string {
  const parts = ["cluster", "submit", kind];
  const program: string[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value)) program.push("--", ...value.map((each) => word(String(each))));
    else parts.push(`--${name.replaceAll("_", "-")}`, word(String(value)));
  }
  return [...parts, ...program].join(" ");
}
