/** Job parameters in a page's URL, such as `cores:4,spawn.mean:2`. Pure functions. */

/** Convert {cores: 4, spawn: {mean: 2}} to ["cores:4", "spawn.mean:2"]. */
export function flattenParameters(value: Record<string, unknown>, path = ""): string[] {
  return Object.entries(value).flatMap(([name, each]) => {
    if (each !== null && typeof each === "object" && !Array.isArray(each))
      return flattenParameters(each as Record<string, unknown>, `${path}${name}.`);
    return [`${path}${name}:${typeof each === "string" && parseValue(each) === each ? each : JSON.stringify(each)}`];
  });
}

/** Convert the list back to an object. Values that are not JSON become strings. */
export function nestParameters(list: readonly string[]): Record<string, unknown> {
  const tree: Record<string, unknown> = {};
  for (const each of list) {
    const colon = each.indexOf(":");
    const names = each.slice(0, colon).split(".");
    const last = names.pop();
    if (colon < 1 || !last || [...names, last].includes("__proto__")) continue;
    let at = tree;
    for (const name of names) {
      at[name] ??= {};
      at = at[name] as Record<string, unknown>;
    }
    at[last] = parseValue(each.slice(colon + 1));
  }
  return tree;
}

function parseValue(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    // Keep integers as strings if a double would change their digits.
    return typeof value === "number" && !Number.isSafeInteger(value) && /^\d+$/.test(text) ? text : value;
  } catch {
    return text;
  }
}
