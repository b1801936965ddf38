// Check the gzipped size of each page against its budget. Run after `npm run build`. The first number counts the page,
// its style sheet and the scripts that it imports. The second number also counts chunks loaded later and web workers.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** Budgets in kilobytes (1000 bytes): initial load, and total. */
const BUDGETS = {
  "index.html": [45, 90],
  "collatz.html": [65, 91],
  "cluster.html": [50, 124],
  "kinds.html": [60, 75],
  "job.html": [60, 90],
};
const dist = new URL("../dist/", import.meta.url);

function text(path) {
  try {
    return readFileSync(new URL(path, dist), "utf8");
  } catch {
    console.error(`there is no web/dist/${path}: run npm run build first`);
    process.exit(1);
  }
}

const NAME = String.raw`[\w.-]+\.(?:json|js|css)`;
const ANY = new RegExp(String.raw`assets/(${NAME})|["'${"`"}]\./(${NAME})["'${"`"}]`, "g");
const IMPORTED = new RegExp(String.raw`(?:from|import)\s*["'${"`"}]\./(${NAME})["'${"`"}]`, "g");

function named(pattern, content) {
  return [...content.matchAll(pattern)].map((found) => `assets/${found[1] ?? found[2]}`);
}

/** Return the files that a page references, directly or through scripts that match `pattern`. */
function reached(page, pattern) {
  const found = new Set([page]);
  for (const path of found) for (const next of named(path.endsWith(".js") ? pattern : ANY, text(path))) found.add(next);
  return [...found];
}

let over = false;
for (const [page, budgets] of Object.entries(BUDGETS)) {
  const [first, all] = [reached(page, IMPORTED), reached(page, ANY)];
  const size = new Map(all.map((path) => [path, gzipSync(text(path), { level: 9 }).length / 1000]));
  const sums = [first, all].map((paths) => paths.reduce((sum, path) => sum + size.get(path), 0));
  for (const [place, title] of ["at first", "in all"].entries()) {
    const fits = sums[place] <= budgets[place];
    over ||= !fits;
    console.log(
      `${page.padEnd(14)} ${sums[place].toFixed(1).padStart(6)} KB of ${budgets[place]} ` +
        `${title}${fits ? "" : "  OVER"}`,
    );
  }
  for (const [path, kilobytes] of size)
    console.log(`  ${kilobytes.toFixed(1).padStart(6)}  ${path}${first.includes(path) ? "" : "  (later)"}`);
}
if (over) {
  console.error("a page is over its budget: look at what it imports, or load it when it is needed");
  process.exit(1);
}
