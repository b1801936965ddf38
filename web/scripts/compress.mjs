// Writes FILE.gz and FILE.br beside what a build made, for servers that send files as they lie. Run after `vite build`.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const TEXT = /\.(?:html|css|js|json|svg|txt)$/;
/** Below this many bytes a file takes one packet either way. */
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
