// What a hypothesis looked at, from a bundle that gives it: in both engines of Node.
import assert from "node:assert/strict";
import { test } from "node:test";
import { loadTranslator } from "../../runtime/web/dist/node.js";
import { attentionBundle, bundles } from "./environment.mjs";

const { path, reason: skip } = attentionBundle();
const texts = ["one two three", "one", "", "three four five six seven"];
const short = { max_length: 8 };

for (const engine of ["native", "wasm"]) {
  test(`each token has a weight for each token of the source, ${engine}`, { skip }, async () => {
    const translator = await loadTranslator(path, { engine, threads: 1 });
    for (const options of [{}, { beam_size: 4, n_best: 4 }, { sampling: true, n_best: 2 }]) {
      const found = await translator.translate(texts, { ...short, ...options, attention: true });
      for (const { hypotheses, source_tokens } of found.filter(({ text }, i) => texts[i] !== "")) {
        for (const { attention, token_scores } of hypotheses) {
          assert.deepEqual(Object.keys(attention), ["cross_attention"]);
          assert.equal(attention.cross_attention.length, token_scores.length);
          for (const heads of attention.cross_attention) {
            assert.equal(heads.length, 4);
            for (const weights of heads) {
              assert.equal(weights.length, source_tokens.length);
              assert.ok(Math.abs(weights.reduce((a, b) => a + b, 0) - 1) < 1e-4);
            }
          }
        }
      }
      assert.equal(found[2].hypotheses[0].attention, undefined);
    }
    await translator.release();
  });
}

test("attention of a batch is that of its sentences alone", { skip }, async () => {
  const translator = await loadTranslator(path, { threads: 1 });
  const options = { ...short, beam_size: 3, attention: true };
  const together = await translator.translate(texts, options);
  for (const [i, text] of texts.entries()) {
    const [alone] = await translator.translate([text], options);
    const weights = ({ hypotheses }) => (hypotheses[0].attention?.cross_attention ?? []).flat().flatMap((row) => Array.from(row));
    assert.equal(weights(alone).length, weights(together[i]).length);
    weights(alone).forEach((weight, w) => assert.ok(Math.abs(weight - weights(together[i])[w]) < 1e-5));
  }
});

test("a bundle without attention says how to get it, and one with it gives it only when asked", { skip }, async () => {
  const without = await loadTranslator(bundles().paths[0]);
  await assert.rejects(without.translate(["one"], { attention: true }), { name: "OptionError", message: /--with attention/ });
  const [found] = await (await loadTranslator(path)).translate(["one two"], short);
  assert.equal(found.hypotheses[0].attention, undefined);
  assert.equal(found.source_tokens, undefined);
});
