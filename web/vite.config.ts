import { defineConfig } from "vite";

/** Port of the running cluster that `npm run dev` uses. */
const port = process.env.COORDINATOR_PORT ?? "3000";

const SHARED =
  /node_modules\/@?preact|preload-helper|src\/(kinds|lib|ui)\/(?!form|fields|submission|outline|histogram|bins|long-table|visible-rows|follow|picture-export|svg|save-dialog|chart|scale|job-actions)/;
/** Modules that the initially visible parts of the Collatz page share; they are bundled as one script. */
const NUMBERS = /src\/(density|pages\/collatz)\/(?!classes|trajectory|model\/(coral|palette|inverse))/;

export default defineConfig({
  publicDir: false,
  build: {
    target: "es2022",
    // Keep light-dark(), which all browsers of the last two years support.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Names of files under /assets/ contain a checksum, so browsers can cache them for a year.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // Texts of the licenses of all bundled packages. docs/licenses.md links to the file.
    license: { fileName: "licenses.txt" },
    rolldownOptions: {
      input: {
        index: "index.html",
        collatz: "collatz.html",
        cluster: "cluster.html",
        kinds: "kinds.html",
        job: "job.html",
      },
      // One script for code shared by pages: on phones, a request costs more than a kilobyte.
      output: {
        codeSplitting: {
          groups: [
            { name: "shared", test: SHARED, minShareCount: 2 },
            { name: "numbers", test: NUMBERS, minShareCount: 2 },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  server: { proxy: { "/api": `http://127.0.0.1:${port}`, "/health": `http://127.0.0.1:${port}` } },
});
