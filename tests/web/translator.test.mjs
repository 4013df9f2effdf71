// The whole path in Node: options, ids in every form, callbacks, cancelling, memory, and the command.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { filesOnDisk, loadTranslator, Translator, webBackend } from "../../runtime/web/dist/node.js";
import { bundles } from "./environment.mjs";

const given = bundles();
const skip = given.reason;
const path = given.paths[0];
const texts = skip ? [] : [...new Set(JSON.parse(readFileSync(join(path, "golden.json"), "utf8")).cases.map((c) => c.text))].slice(0, 4);
const quiet = { truncate_source: true, warn: () => undefined, max_length: 20 };

test("all contradictions of options are told at once, before any work", { skip }, async () => {
  const translator = await loadTranslator(path);
  const wrong = { beam_size: 0, n_best: 2, alpha: 11, temperature: NaN, seed: -1, suppress_tokens: [10 ** 9], min_length: 1.5 };
  await assert.rejects(translator.translate(texts, wrong), ({ name, message }) => {
    assert.equal(name, "OptionError");
    for (const option of Object.keys(wrong)) assert.match(message, new RegExp(option));
    return true;
  });
  await assert.rejects(translator.translate(texts, { beams: 3 }), { name: "OptionError", message: /unknown generation option beams/ });
  await assert.rejects(translator.translate("text"), { name: "OptionError", message: /list of texts/ });
  await assert.rejects(translator.translate(["a"], { prefixes: [] }), { name: "OptionError", message: /0 prefixes for 1 texts/ });
});

test("ids may be numbers, Int32Array or BigInt64Array", { skip }, async () => {
  const translator = await loadTranslator(path);
  const results = [];
  for (const ids of [[5, 6], Int32Array.of(5, 6), BigInt64Array.of(5n, 6n)]) {
    results.push(await translator.translate([texts[0]], { ...quiet, suppress_tokens: ids, prefixes: [ids] }));
  }
  assert.deepEqual(results[0][0].hypotheses[0].ids.slice(0, 2), [5, 6]);
  assert.deepEqual(results[1], results[0]);
  assert.deepEqual(results[2], results[0]);
  await assert.rejects(translator.translate([texts[0]], { prefixes: [[-1]] }), { name: "InputError" });
});

test("an empty line keeps its place", { skip }, async () => {
  const translator = await loadTranslator(path);
  const found = await translator.translate(["", texts[0], " \u3000"], { ...quiet, beam_size: 2, n_best: 2 });
  assert.deepEqual(found.map((t) => t.hypotheses.length), [1, 2, 1]);
  assert.equal(found[0].hypotheses[0].finish_reason, "eos");
});

test("a text that is too long is refused by its number, or cut with a warning", { skip }, async () => {
  const translator = await loadTranslator(path);
  const long = `${texts[0]} `.repeat(100);
  await assert.rejects(translator.translate([texts[0], long]), { name: "InputError", index: 1, message: /^text 2 has \d+ tokens/ });
  const warnings = [];
  await translator.translate([texts[0], long], { ...quiet, warn: (warning) => warnings.push(warning) });
  assert.deepEqual(warnings.map((w) => w.index), [1]);
});

test("a callback that returns true ends its sentence, and only that", { skip }, async () => {
  const translator = await loadTranslator(path);
  const options = { ...quiet, min_length: 8, callback: ({ sentence, tokens }) => sentence === 1 && tokens.length === 3 };
  const found = await translator.translate(texts.slice(0, 2), options);
  assert.deepEqual(found[1].hypotheses.map((h) => [h.ids.length, h.finish_reason]), [[3, "cancelled"]]);
  assert.ok(found[0].hypotheses[0].ids.length >= 8);
});

test("an aborted signal rejects, and the next call is served", { skip }, async () => {
  const translator = await loadTranslator(path);
  const abort = new AbortController();
  const callback = () => abort.abort();
  await assert.rejects(translator.translate(texts, { ...quiet, callback, signal: abort.signal }), { name: "AbortError" });
  assert.equal((await translator.translate(texts, quiet)).length, texts.length);
});

test("calls that overlap give what they give alone", { skip }, async () => {
  const translator = await loadTranslator(path, { engine: "wasm" });
  const alone = [];
  for (const text of texts) alone.push(await translator.translate([text], quiet));
  assert.deepEqual(await Promise.all(texts.map((text) => translator.translate([text], quiet))), alone);
});

test("the package of onnxruntime-web, which copies, gives what its module gives", { skip }, async () => {
  const ort = await import("../../runtime/web/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
  const copying = await Translator.load(await filesOnDisk(path), await webBackend({ ort, threads: 1 }));
  const direct = await loadTranslator(path, { engine: "wasm" });
  for (const options of [{}, { beam_size: 3, n_best: 3 }, { sampling: true, seed: 4 }]) {
    assert.deepEqual(await copying.translate(texts, { ...quiet, ...options }), await direct.translate(texts, { ...quiet, ...options }));
  }
});

test("an engine with another interface is refused with what to do", async () => {
  const other = { default: async () => ({ _OrtInit: (one, two, three) => 0 * (one + two + three) }) };
  await assert.rejects(webBackend({ ort: other, threads: 1 }), { name: "UnavailableError", message: /give its package itself/ });
});

// Collecting garbage by hand shows what is really held.
const built = (name) => JSON.stringify(new URL(`../../runtime/web/dist/${name}`, import.meta.url).href);
const engineAddress = new URL("../../runtime/web/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.mjs", import.meta.url).href;
const growth = `
  import { loadTranslator } from ${built("node.js")};
  import { startWasm } from ${built("wasm_module.js")};
  const [path, engine, text] = process.argv.slice(1);
  const translator = await loadTranslator(path, { engine, threads: 1 });
  const module = engine === "wasm" ? await startWasm((await import(${JSON.stringify(engineAddress)})).default, 1) : null;
  const options = { beam_size: 2, n_best: 2, max_length: 6, truncate_source: true, warn: () => undefined };
  const held = async (count) => {
    for (let i = 0; i < count; i++) await translator.translate([text], options);
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20)); // what is freed later
    globalThis.gc();
    const { heapUsed, arrayBuffers, external } = process.memoryUsage();
    module?.getValue(0, "i8"); // renews the view of the engine's memory
    return heapUsed + arrayBuffers + external + (module?.HEAPU8.length ?? 0);
  };
  await held(150);
  const before = await held(50);
  console.log((await held(500)) - before);
`;
for (const engine of ["native", "wasm"]) {
  test(`500 translations leave nothing behind, ${engine}`, { skip }, () => {
    const args = ["--expose-gc", "--input-type=module", "-e", growth, path, engine, texts[0] ?? ""];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    assert.ok(Number(stdout) < 500_000, `${stdout} bytes more after 500 translations; ${stderr}`);
  });
}

const cli = fileURLToPath(new URL("../../runtime/web/dist/cli.js", import.meta.url));
const command = (args, input) => spawnSync(process.execPath, [cli, ...args], { input, encoding: "utf8" });

test("the command gives as many lines as it gets, whatever ends them", { skip }, async () => {
  const translator = await loadTranslator(path);
  const [one, other] = await translator.translate(texts.slice(0, 2));
  const { stdout, status } = command([path], `\ufeff${texts[0]}\r\n\n${texts[1]}`);
  assert.equal(status, 0);
  const line = ({ text }) => text.replace(/[\r\n]/g, " ");
  assert.equal(stdout, `${line(one)}\n\n${line(other)}\n`);
});

test("the command prints scores, n-best lists and JSON", { skip }, () => {
  const rows = command([path, "--beam-size", "3", "--n-best", "2", "--scores", "--engine", "wasm"], `${texts[0]}\n`).stdout.trim().split("\n");
  assert.deepEqual(rows.map((row) => /^1\t-?\d+\.\d{4}\t/.test(row)), [true, true]);
  const { line, hypotheses } = JSON.parse(command([path, "--json"], texts[0]).stdout);
  assert.equal(line, 1);
  assert.equal(hypotheses[0].token_scores.length, hypotheses[0].ids.length + (hypotheses[0].truncated ? 0 : 1));
});

test("the command fails with one line and a status by kind", { skip }, () => {
  for (const [args, input, status, message] of [
    [[path, "--no-such"], "", 2, /Unknown option '--no-such'/],
    [[path, "--beam-size", "0"], "", 2, /beam_size must be a whole number from 1/],
    [[`${path}-none`], "", 4, /no such file or folder/],
    [[path], Buffer.from([0x61, 0x0a, 0xff]), 4, /input, line 2 is not UTF-8 \(byte 1 is 0xff\)/],
    [[path], `a\n${`${texts[0]} `.repeat(100)}`, 4, /input, line 2 has \d+ tokens/],
  ]) {
    const found = command(args, input);
    assert.equal(found.status, status, found.stderr);
    assert.match(found.stderr, message);
    assert.equal(found.stderr.trim().split("\n").length, 1);
  }
});
