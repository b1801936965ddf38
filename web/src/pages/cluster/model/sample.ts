/** Shell commands that submit a job, and the jobs in them. Pure functions. */

/** Quote a word for a shell. */
function word(text: string): string {
  return /^[\w@%+=:,./{}-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return `cluster submit KIND --name value -- ARGUMENTS`. */
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

/** Parse the parameters of a command without a program. */
export function parametersOf(line: string): Record<string, unknown> {
  const given = [...line.matchAll(/--([a-z-]+) (?!--)(\S+)/g)];
  return Object.fromEntries(given.map(([, name = "", text = ""]) => [name.replaceAll("-", "_"), value(text)]));
}
