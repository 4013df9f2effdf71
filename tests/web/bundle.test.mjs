// What is refused, and in which words; and that a bundle loads from a folder, a zip and an address.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { bundleFiles, filesOnDisk, loadTranslator, openBundle } from "../../runtime/web/dist/node.js";
import { digestOf } from "../../runtime/web/dist/sha256.js";
import { parseJson } from "../../runtime/web/dist/strict_json.js";
import { bundles } from "./environment.mjs";
import { storedZip } from "./stored_zip.mjs";

const given = bundles();
const skip = given.reason;
const path = given.paths[0];
const scratch = mkdtempSync(join(tmpdir(), "tfexport-web-"));
after(() => rmSync(scratch, { recursive: true }));

function content() {
  return new Map(readdirSync(path).map((name) => [name, new Uint8Array(readFileSync(join(path, name)))]));
}

/** A bundle in memory, with its files and manifest changed. */
function changed({ files = () => undefined, manifest = () => undefined, text = (json) => json }) {
  const all = content();
  files(all);
  const values = JSON.parse(Buffer.from(all.get("bundle.json")).toString());
  delete values.digest; // as if it had been written so
  manifest(values);
  all.set("bundle.json", new TextEncoder().encode(text(JSON.stringify(values))));
  return { origin: "b", names: [...all.keys()], read: async (name) => all.get(name).slice() };
}

const refused = (name, change, message) =>
  test(`refused: ${name}`, { skip }, () => assert.rejects(openBundle(changed(change)), { name: "BundleError", message }));

refused("a flipped bit of the weights", { files: (all) => (all.get("weights.bin")[100] ^= 1) }, /^b\/weights\.bin: .*SHA-256/);
refused("weights cut short", { files: (all) => all.set("weights.bin", all.get("weights.bin").slice(1)) }, /weights\.bin: has \d+ bytes/);
refused("a file that is not listed", { files: (all) => all.set("x.txt", new Uint8Array()) }, /x\.txt not part of the bundle/);
refused("a file that is missing", { files: (all) => all.delete("README.md") }, /README\.md missing/);
refused("a newer format", { manifest: (m) => (m.format_version = 2) }, /newer than this runtime reads \(1\); upgrade/);
refused("another JSON", { manifest: (m) => (m.format = "x") }, /not the manifest of a tfexport bundle/);
refused("an unknown key", { manifest: (m) => (m.model.colour = 1) }, /unknown field model\.colour/);
test("lists of ids that every text gets may be missing", { skip }, async () => {
  const lists = ({ source, target }) => [source.prefix_ids, source.suffix_ids, target.prefix_ids].filter((ids) => ids?.length);
  const without = (m) => [delete m.source.prefix_ids, delete m.source.suffix_ids, delete m.target.prefix_ids];
  assert.deepEqual(lists((await openBundle(changed({ manifest: without }))).manifest), []);
});
refused("a missing key", { manifest: (m) => delete m.cache }, /missing field cache/);
refused("a path out of the bundle", { manifest: (m) => (m.weights[0] = "../weights.bin") }, /weights\[0\] is not allowed: "\.\.\/weights\.bin"/);
refused("text for the list of weights", { manifest: (m) => (m.weights = "weights.bin") }, /weights must be a list/);
refused("weights that are not there", { manifest: (m) => m.weights.push("more.bin") }, /weights\[1\] more\.bin is not listed in files/);
refused("a third graph", { manifest: (m) => (m.graphs.other = m.graphs.encoder) }, /graphs holds 3 members, allowed are 1 to 2/);
refused("a graph without the other", { manifest: (m) => delete m.graphs.encoder }, /graphs of format onnx must be decoder and encoder/);
refused("an unknown format", { manifest: (m) => (m.graph_format = "tflite") }, /graph_format must be one of onnx, ort, single/);
refused("a pair in the format of one graph", { manifest: (m) => (m.graph_format = "single") }, /graphs of format single must be search/);
refused("an ending of another format", { manifest: (m) => (m.graph_format = "ort") }, /graphs\.encoder\.file encoder\.onnx must end with \.ort, as of format ort/);
refused("an unknown form of the cache", { manifest: (m) => (m.cache.form = "other") }, /cache\.form must be one of in_place, growing, fixed/);
refused("graphs without weights that read some", { manifest: (m) => (m.weights = []) }, /reads weights\.bin, not only itself/);
refused("the format of another engine", { files: (all) => inFormat(all, "aoti", "pt2") }, /^b: of format aoti, which another engine runs: see the README\.md in it$/);
refused("a size that varies where shapes are fixed", { manifest: (m) => (m.cache.form = "fixed") }, /graphs\.encoder: input_ids has the axis "\w+", but cache\.form is fixed/);
refused("a length that is not the model's", { manifest: fixedShapes }, /model\.max_source_length is \d+, but input_ids of the encoder has another length in its shape; model\.max_target_length/);
test("what is not ONNX needs no version of it", { skip }, async () => {
  const none = { opset: 0, ir_version: 0, requirements: { onnxruntime: "", domains: [] }, graph_format: "onnx" };
  assert.ok(await openBundle(changed({ manifest: (m) => Object.assign(m, none) })));
});
test("several files of weights are read, and a graph may read any of them", { skip }, async () => {
  const files = (all) => {
    relist(all, "more.bin", new Uint8Array(3));
    relist(all, "private.key", all.get("weights.bin"));
    relist(all, "encoder.onnx", foreignGraph(all));
  };
  const bundle = await openBundle(changed({ files, manifest: (m) => m.weights.push("private.key", "more.bin") }));
  assert.equal(bundle.bytes("more.bin").length, 3);
});
refused("ids outside of the vocabulary", { manifest: (m) => (m.target.eos_id = 10 ** 6) }, /target\.eos_id 1000000 is outside/);
for (const [side, key] of [["source", "prefix_ids"], ["source", "suffix_ids"], ["target", "prefix_ids"]]) {
  const wrong = { manifest: (m) => (m[side][key] = [10 ** 6]) };
  refused(`${side}.${key} outside of the vocabulary`, wrong, new RegExp(`${side}\\.${key} holds ids outside`));
}
refused("several problems, all at once", { manifest: (m) => ((m.opset = -1), (m.precision = 7)) }, /precision must be.*opset must be/);
refused("defaults that contradict each other", { manifest: (m) => (m.generation = { n_best: 3 }) }, /generation: n_best 3 needs/);
refused("a key twice", { text: (json) => json.replace("{", '{"format": "tfexport-bundle", ') }, /key "format" appears twice/);
refused("a broken graph", { files: (all) => relist(all, "encoder.onnx", new Uint8Array([255, 255])) }, /encoder\.onnx: not an ONNX graph/);
refused("a graph that reads another file", { files: (all) => relist(all, "encoder.onnx", foreignGraph(all)) }, /reads private\.key, not only weights\.bin/);

function relist(all, name, bytes) {
  const manifest = JSON.parse(Buffer.from(all.get("bundle.json")).toString());
  manifest.files[name] = { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
  all.set(name, bytes);
  delete manifest.digest;
  all.set("bundle.json", new TextEncoder().encode(JSON.stringify(manifest)));
}

/** A number of 7 for every size that varies. */
function fixedShapes(m) {
  m.cache.form = "fixed";
  for (const { inputs, outputs } of Object.values(m.graphs)) {
    for (const tensor of [...inputs, ...outputs]) tensor.shape = tensor.shape.map((axis) => (typeof axis === "string" ? 7 : axis));
  }
}

/** The graphs under names of another format. */
function inFormat(all, format, ending) {
  const manifest = JSON.parse(Buffer.from(all.get("bundle.json")).toString());
  for (const graph of Object.values(manifest.graphs)) {
    const file = graph.file.replace(/onnx$/, ending);
    manifest.files[file] = manifest.files[graph.file];
    all.set(file, all.get(graph.file));
    all.delete(graph.file);
    delete manifest.files[graph.file];
    graph.file = file;
  }
  all.set("bundle.json", new TextEncoder().encode(JSON.stringify({ ...manifest, graph_format: format })));
}

function foreignGraph(all) {
  const graph = Buffer.from(all.get("encoder.onnx")).toString("latin1").replaceAll("weights.bin", "private.key");
  return new Uint8Array(Buffer.from(graph, "latin1"));
}

test("a manifest that was changed after it was sealed is refused, unless hashes are not wanted", { skip }, async () => {
  const seal = (json) => {
    const blank = `${json.slice(0, -1)},\n  "digest": "${"0".repeat(64)}"\n}\n`;
    return blank.replace("0".repeat(64), createHash("sha256").update(blank).digest("hex"));
  };
  const named = (m) => (m.model.name = "größer");
  assert.ok(await openBundle(changed({ manifest: named, text: seal })));
  const later = { manifest: named, text: (json) => seal(json).replace("größer", "grösser") };
  await assert.rejects(openBundle(changed(later)), { name: "BundleError", message: /bundle\.json: was changed after/ });
  assert.ok(await openBundle(changed(later), { verify: false }));
  const moved = { text: (json) => `{"digest": "${"0".repeat(64)}", ${json.slice(1)}` };
  await assert.rejects(openBundle(changed(moved)), { message: /was changed after/ });
});

test("the checked bundle without SHA-256 still has its sizes checked", { skip }, async () => {
  const flipped = changed({ files: (all) => (all.get("weights.bin")[100] ^= 1) });
  assert.ok(await openBundle(flipped, { verify: false }));
  const short = changed({ files: (all) => all.set("weights.bin", all.get("weights.bin").slice(1)) });
  await assert.rejects(openBundle(short, { verify: false }), { name: "BundleError" });
});

test("progress ends at the total", { skip }, async () => {
  const reports = [];
  await openBundle(changed({}), { onProgress: (progress) => reports.push(progress) });
  assert.equal(reports.at(-1).loaded, reports.at(-1).total);
});

test("a link in a folder is refused", { skip }, async () => {
  const copy = join(scratch, "linked");
  cpSync(path, copy, { recursive: true });
  rmSync(join(copy, "README.md"));
  symlinkSync(join(path, "README.md"), join(copy, "README.md"));
  await assert.rejects(loadTranslator(copy), { name: "BundleError", message: /README\.md: is a link/ });
});

test("a folder that is not there, and one without a manifest, are told apart", { skip }, async () => {
  await assert.rejects(loadTranslator(join(scratch, "none")), { name: "BundleError", message: /no such file or folder/ });
  await assert.rejects(loadTranslator(join(path, "..", ".")), { name: "BundleError" });
});

test("a stored zip gives what its folder gives; a compressed one is refused", { skip }, async () => {
  const zip = join(scratch, "bundle.zip");
  writeFileSync(zip, storedZip(content()));
  const texts = ["t5 t6 t7", "ein kleiner hund"];
  const [folder, packed] = [await loadTranslator(path), await loadTranslator(zip)];
  assert.deepEqual(await packed.translate(texts), await folder.translate(texts));
  await assert.rejects(bundleFiles(storedZip(content(), { method: 8 })), { message: /is compressed/ });
  await assert.rejects(bundleFiles(storedZip(new Map([["../bundle.json", new Uint8Array()]]))), { message: /not a plain file name/ });
  await assert.rejects(bundleFiles(storedZip(content()).subarray(0, -30)), { message: /neither the folder of a bundle nor a zip/ });
});

test("an address gives what its folder gives, and errors name the file and its address", { skip }, async () => {
  const files = content();
  const server = createServer(({ url }, response) => {
    const file = files.get(url.slice(url.lastIndexOf("/") + 1));
    response.writeHead(file ? 200 : 404).end(file);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${server.address().port}/b`;
  const texts = ["t5 t6 t7", "ein kleiner hund"];
  const [folder, served] = [await loadTranslator(path), await loadTranslator(address, { engine: "wasm" })];
  const ids = (translations) => translations.map((t) => t.hypotheses[0].ids);
  assert.deepEqual(ids(await served.translate(texts)), ids(await folder.translate(texts)));
  files.delete("weights.bin");
  await assert.rejects(loadTranslator(address), { name: "BundleError", message: /\/b\/weights\.bin: the server answers 404/ });
  server.close();
  server.closeAllConnections();
  await assert.rejects(loadTranslator(address), { name: "UnavailableError", message: /\/b\/bundle\.json: cannot be fetched/ });
});

test("names of files on disk come from the folder alone", { skip }, async () => {
  assert.deepEqual([...(await filesOnDisk(path)).names].sort(), readdirSync(path).sort());
});

test("the own SHA-256 is that of Node, at every length around a block", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000]) {
    const data = Uint8Array.from({ length }, (_, i) => (i * 31) & 255);
    assert.equal(Buffer.from(digestOf(data)).toString("hex"), createHash("sha256").update(data).digest("hex"));
  }
});

test("strict JSON agrees with JSON.parse, keeps large whole numbers, and refuses what is not JSON", () => {
  const text = ' {"a": [1, -2.5e3, true, null, "\\u00e9\\n", {}], "b": {"__proto__": []}} ';
  assert.deepEqual(parseJson(text, "x"), JSON.parse(text));
  assert.equal(parseJson("18446744073709551615", "x"), 18446744073709551615n);
  for (const wrong of ["", "{", "[1,]", '{"a" 1}', "01", "NaN", "1e999", '"\t"', "[] []", '{"a":1,"a":2}', "[".repeat(200)]) {
    assert.throws(() => parseJson(wrong, "x"), { name: "BundleError", message: /^x: not JSON/ }, wrong);
  }
});
