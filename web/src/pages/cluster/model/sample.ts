/** Lines of a shell that submit a job, and what they submit. Pure. */

/** A word as a shell takes it. */
function word(text: string): string {
  return /^[\w@%+=:,./{}-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** `cluster submit KIND --name value -- words of the program`. */
export function lineOf(kind: string, parameters: Readonly<Record<string, unknown>>): string {
  const parts = ["cluster", "submit", kind];
  const program: string[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value) && value.some((each) => typeof each === "string"))
      program.push("--", ...value.map((each) => word(String(each))));
    else parts.push(`--${name.replaceAll("_", "-")}`, word(String(value)));
  }
  return [...parts, ...program].join(" ");
}

function value(text: string): unknown {
  if (text.includes(",")) return text.split(",").map(value);
  return /^\d+$/.test(text) ? Number(text) : text;
}

/** The parameters of such a line, which names no program. */
export function parametersOf(line: string): Record<string, unknown> {
  const given = [...line.matchAll(/--([a-z-]+) (?!--)(\S+)/g)];
  return Object.fromEntries(given.map(([, name = "", text = ""]) => [name.replaceAll("-", "_"), value(text)]));
}
