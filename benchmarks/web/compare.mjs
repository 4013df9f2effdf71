// node compare.mjs MATERIALS [--steps 40] [--rounds 15] [--json FILE]: see README.md.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const web = join(here, "../../runtime/web");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { steps: { type: "string", default: "40" }, rounds: { type: "string", default: "15" }, json: { type: "string" } },
});
const [materials] = positionals;
const [steps, rounds] = [Number(values.steps), Number(values.rounds)];
const require = createRequire(join(web, "package.json"));
const transformers = join(here, "node_modules/@huggingface/transformers");
const transformersOrt = join(here, "node_modules/onnxruntime-web");

const PLACES = {
  runtime: join(web, "dist"),
  ort: join(web, "node_modules/onnxruntime-web/dist"),
  transformers: join(transformers, "dist"),
  "transformers-ort": join(transformersOrt, "dist"),
  models: join(materials, "models"),
  bundles: join(materials, "bundles"),
  here,
};
const TYPES = { ".mjs": "text/javascript", ".js": "text/javascript", ".json": "application/json", ".wasm": "application/wasm" };
const ISOLATION = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
};
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];

// The builds of ONNX Runtime: the one that transformers.js chooses by itself, and the leaner one that it can be given.
const PEERS = { "transformers.js": "ort-wasm-simd-threaded.asyncify", "transformers.js, plain build": "ort-wasm-simd-threaded" };
const PRECISIONS = [
  { name: "fp32", bundles: { tfexport: "/bundles/fp32/" }, dtype: "fp32" },
  { name: "int8", bundles: { tfexport: "/bundles/int8/", "tfexport, reproducible": "/bundles/int8-reproducible/" }, dtype: "q8" },
];

const server = createServer(async ({ url }, response) => {
  const [, place, ...rest] = normalize(decodeURIComponent(new URL(url, "http://x").pathname)).split("/");
  const file = PLACES[place] === undefined ? null : await readFile(join(PLACES[place], ...rest)).catch(() => null);
  if (url === "/") return response.writeHead(200, { "content-type": "text/html", ...ISOLATION }).end("<!doctype html>");
  if (file === null) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": TYPES[extname(url)] ?? "application/octet-stream", ...ISOLATION }).end(file);
});

/** In the page: workers that answer one call at a time. */
function startWorkers(settings) {
  globalThis.workers = settings.map(() => new Worker("/here/engines.mjs", { type: "module" }));
  globalThis.ask = (i, message) =>
    new Promise((resolve, reject) => {
      const worker = globalThis.workers[i];
      worker.onmessage = ({ data }) => ("failed" in data ? reject(new Error(data.failed)) : resolve(data.done));
      worker.onerror = (event) => reject(new Error(event.message));
      worker.postMessage(message);
    });
  return Promise.all(settings.map((setting, i) => globalThis.ask(i, { kind: "load", ...setting })));
}

/** Rounds of every engine in turn, each over all sources; the first ones warm them up. */
async function measure(page, engines, sources, warmUp) {
  const times = engines.map(() => []);
  const tokens = engines.map(() => []);
  for (let round = 0; round < warmUp + rounds; round++) {
    for (const i of engines.keys()) {
      let sum = 0;
      for (const [s, ids] of sources.entries()) {
        const done = await page.evaluate(([i, call]) => globalThis.ask(i, call), [i, { kind: "run", ids, steps }]);
        sum += done.milliseconds;
        tokens[i][s] = done.tokens;
      }
      if (round >= warmUp) times[i].push(sum / sources.length);
    }
  }
  return { times, tokens };
}

const sorted = (list) => [...list].sort((a, b) => a - b);
const median = (list) => sorted(list)[list.length >> 1];

async function versionIn(folder) {
  return JSON.parse(await readFile(join(folder, "package.json"), "utf8")).version;
}

async function main() {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { eos, sources } = JSON.parse(await readFile(join(materials, "texts.json"), "utf8"));
  const { chromium } = await import(require.resolve("playwright-core").replace(/index\.js$/, "index.mjs"));
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const results = [];
  let version;
  for (const threads of [1, Math.min(4, cpus().length)]) {
    for (const { name, bundles, dtype } of PRECISIONS) {
      const browser = await chromium.launch({ executablePath, args: FLAGS });
      version = browser.version();
      const page = await browser.newPage();
      await page.goto(`http://127.0.0.1:${server.address().port}/`);
      const peers = Object.entries(PEERS).map(([label, wasm]) => ({ engine: "transformers", label, model: "marian", dtype, threads, wasm, eos }));
      const ours = Object.entries(bundles).map(([label, bundle]) => ({ engine: "ours", label, bundle, threads }));
      const engines = [...ours, ...peers];
      await page.evaluate(startWorkers, engines);
      const { times, tokens } = await measure(page, engines, sources, 3);
      const same = (i) => tokens[i].every((ids, s) => ids.slice(0, steps - 1).every((id, t) => id === tokens[0][s][t]));
      for (const [i, { label }] of engines.entries()) {
        results.push({
          threads,
          precision: name,
          engine: label,
          median_ms: median(times[i]),
          best_ms: Math.min(...times[i]),
          same_tokens: same(i),
          times_of_ours: { median: median(times[i]) / median(times[0]), best: Math.min(...times[i]) / Math.min(...times[0]) },
        });
        const row = results.at(-1);
        console.log(
          `${threads} thread(s), ${name}, ${label}: median ${row.median_ms.toFixed(1)} ms, best ${row.best_ms.toFixed(1)} ms, ` +
            `${row.times_of_ours.median.toFixed(2)} (best ${row.times_of_ours.best.toFixed(2)}) times ours, ` +
            `tokens ${row.same_tokens ? "equal" : "differ"}`,
        );
      }
      await browser.close();
    }
  }
  const versions = {
    chromium: version,
    "onnxruntime-web": await versionIn(join(web, "node_modules/onnxruntime-web")),
    "@huggingface/transformers": await versionIn(transformers),
    "its onnxruntime-web": await versionIn(transformersOrt),
    processor: `${cpus()[0].model}, ${cpus().length} cores`,
  };
  const report = { steps, rounds, sources: sources.length, versions, results };
  if (values.json) await writeFile(values.json, `${JSON.stringify(report, null, 2)}\n`);
  server.close();
}

await main();
