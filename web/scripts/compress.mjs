// Write FILE.gz and FILE.br next to each file of a build, for servers that send precompressed files. Run after `vite
// build`.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const TEXT = /\.(?:html|css|js|json|svg|txt)$/;
/** Minimum size in bytes of compressed files: smaller files fit into one packet anyway. */
const LEAST = 1000;
const dist = new URL("../dist/", import.meta.url);

for (const name of readdirSync(dist, { recursive: true })) {
  if (!TEXT.test(name)) continue;
  const content = readFileSync(new URL(name, dist));
  if (content.length < LEAST) continue;
  const ways = {
    gz: gzipSync(content, { level: 9 }),
    br: brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }),
  };
  for (const [end, packed] of Object.entries(ways)) {
    if (packed.length < content.length) writeFileSync(new URL(`${name}.${end}`, dist), packed);
  }
}
