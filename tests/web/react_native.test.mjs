// The React Native adapter with stand-ins for the device: its file system, and an engine that takes paths alone.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import * as node from "../../runtime/web/dist/node.js";
import { loadTranslator } from "../../runtime/web/dist/react_native.js";
import { bundles } from "./environment.mjs";

const given = bundles();
const skip = given.reason;
const path = given.paths[0];
const require = createRequire(new URL("../../runtime/web/package.json", import.meta.url));

const local = (place) => place.replace("file://", "");
const files = {
  list: async (folder) => readdirSync(local(folder)),
  size: async (place) => statSync(local(place)).size,
  readBase64: async (place) => readFileSync(local(place)).toString("base64").replace(/.{76}/g, "$&\n"),
};

/** Hands paths on to the engine of Node, and remembers what it was asked. */
function device() {
  const { InferenceSession, Tensor } = require("onnxruntime-node");
  const opened = [];
  const create = (place, options) => {
    assert.equal(typeof place, "string");
    opened.push([place, options.executionProviders]);
    return InferenceSession.create(place, { logSeverityLevel: 3 });
  };
  return { opened, ort: { Tensor, InferenceSession: { create } } };
}

test("the adapter opens graphs by path and gives what Node gives", { skip }, async () => {
  const { opened, ort } = device();
  const translator = await loadTranslator(`file://${path}/`, ort, files, { executionProviders: ["xnnpack"] });
  assert.deepEqual(opened, ["encoder.onnx", "decoder.onnx"].map((name) => [join(path, name), ["xnnpack"]]));
  const texts = ["t5 t6 t7", "ein kleiner hund", ""];
  for (const options of [{}, { beam_size: 3, n_best: 2 }, { sampling: true, seed: 5 }]) {
    const expected = await (await node.loadTranslator(path)).translate(texts, options);
    assert.deepEqual(await translator.translate(texts, options), expected);
  }
  await translator.release();
});

test("a file of another size is refused before it is read", { skip }, async () => {
  const short = { ...files, size: async (place) => (await files.size(place)) - Number(place.endsWith("weights.bin")) };
  await assert.rejects(loadTranslator(path, device().ort, short), { name: "BundleError", message: /weights\.bin: has \d+ bytes/ });
});
