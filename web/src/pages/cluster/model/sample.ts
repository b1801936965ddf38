/** Shell commands that submit a job, and the jobs in them. Pure functions. */

/** Quote a word for a shell. */
function quoteWord(text: string): string {
  return /^[\w@%+=:,./{}-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return `cluster submit KIND --name value -- ARGUMENTS`. */
export function formatCommand(kind: string, parameters: Readonly<Record<string, unknown>>): string {
  const parts = ["cluster", "submit", kind];
  const program: string[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value) && value.some((each) => typeof each === "string"))
      program.push("--", ...value.map((each) => quoteWord(String(each))));
    else parts.push(`--${name.replaceAll("_", "-")}`, quoteWord(String(value)));
  }
  return [...parts, ...program].join(" ");
}

function parseValue(text: string): unknown {
  if (text.includes(",")) return text.split(",").map(parseValue);
  return /^\d+$/.test(text) ? Number(text) : text;
}

/** Parse the parameters of a command without a program. */
export function parseParameters(line: string): Record<string, unknown> {
  const options = [...line.matchAll(/--([a-z-]+) (?!--)(\S+)/g)];
  return Object.fromEntries(options.map(([, name = "", text = ""]) => [name.replaceAll("-", "_"), parseValue(text)]));
}
