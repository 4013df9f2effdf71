// Bundles whose every shape is a number: rows in chunks, candidates ranked here, engines that copy.
import assert from "node:assert/strict";
import { test } from "node:test";
import { filesOnDisk, loadTranslator, Translator, webBackend } from "../../runtime/web/dist/node.js";
import { bundles } from "./environment.mjs";

const given = bundles();
const path = given.paths.find((place) => place.includes("fixed"));
const skip = given.reason || (path ? false : "no bundle of fixed shapes is among TFEXPORT_WEB_BUNDLES");
const texts = ["ein kleiner hund", "über die grüne wiese und den see", "", "x"];

test("wide beams and many rows give what sentences give alone, in every engine", { skip }, async () => {
  const ort = await import("../../runtime/web/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
  const translators = [
    await loadTranslator(path, { threads: 1 }),
    await loadTranslator(path, { engine: "wasm" }),
    await Translator.load(await filesOnDisk(path), await webBackend({ ort, threads: 1 })),
  ];
  for (const options of [{ beam_size: 6, n_best: 6 }, { beam_size: 4, no_repeat_ngram_size: 2 }, { sampling: true, n_best: 3 }]) {
    const short = { ...options, max_length: 9 };
    const results = [];
    for (const translator of translators) {
      const together = await translator.translate(texts, short);
      const [alone] = await translator.translate([texts[1]], short);
      const ids = (translation) => translation.hypotheses.map((h) => h.ids);
      assert.deepEqual(ids(together[1]), ids(alone));
      results.push(together.map(ids));
    }
    assert.deepEqual(results[1], results[0]);
    assert.deepEqual(results[2], results[0]);
  }
  for (const translator of translators) await translator.release();
});

test("a text that is longer than the graph is refused", { skip }, async () => {
  const translator = await loadTranslator(path, { threads: 1 });
  await assert.rejects(translator.translate(["a b ".repeat(40)]), { name: "InputError", message: /tokens, the model takes 47/ });
  await translator.release();
});
