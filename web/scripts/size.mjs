// Weighs what a browser loads for each page, gzipped, and fails where a page passes its budget. Run after `npm run build`.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** Kilobytes of 1000 bytes. */
const BUDGETS = { "index.html": 45, "collatz.html": 60, "cluster.html": 60 };
const dist = new URL("../dist/", import.meta.url);

function text(path) {
  try {
    return readFileSync(new URL(path, dist), "utf8");
  } catch {
    console.error(`there is no web/dist/${path}: run npm run build first`);
    process.exit(1);
  }
}

/** Files that a text names: of a page its scripts and styles, of a script what it imports, later or at once, and its workers. */
function named(content) {
  return [...content.matchAll(/assets\/[\w.-]+\.(?:js|css)|(?<=["'`])\.\/[\w.-]+\.(?:js|css)(?=["'`])/g)].map(([found]) =>
    found.startsWith("./") ? `assets/${found.slice(2)}` : found,
  );
}

function files(page) {
  const found = new Set([page]);
  for (const path of found) for (const next of named(text(path))) found.add(next);
  return [...found];
}

let over = false;
for (const [page, budget] of Object.entries(BUDGETS)) {
  const sizes = files(page).map((path) => [path, gzipSync(text(path), { level: 9 }).length / 1000]);
  const total = sizes.reduce((sum, [, size]) => sum + size, 0);
  const fits = total <= budget;
  over ||= !fits;
  console.log(`${page.padEnd(14)} ${total.toFixed(1).padStart(6)} KB of ${budget}${fits ? "" : "  OVER"}`);
  for (const [path, size] of sizes) console.log(`  ${size.toFixed(1).padStart(6)}  ${path}`);
}
if (over) {
  console.error("a page is over its budget: look at what it imports, or load it when it is needed");
  process.exit(1);
}
