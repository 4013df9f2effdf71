// The encoder's states and the attention against those of Python, in both engines of Node.
import assert from "node:assert/strict";
import { basename } from "node:path";
import { test } from "node:test";
import { loadTranslator } from "../../runtime/web/dist/node.js";
import { bundles, further } from "./environment.mjs";

const { cases, reason: skip } = further();

/** Numbers in lists and by names, of any depth. */
function assertClose(found, expected) {
  if (typeof expected === "number") return assert.ok(Math.abs(found - expected) < 1e-4, `${found} is not ${expected}`);
  assert.deepEqual(Object.keys(found), Object.keys(expected));
  for (const key of Object.keys(expected)) assertClose(found[key], expected[key]);
}

for (const { bundle, texts, states, attention } of cases) {
  for (const engine of ["native", "wasm"]) {
    test(`${basename(bundle)}, ${engine}: states and attention are those of Python`, async () => {
      const translator = await loadTranslator(bundle, { engine, threads: 1 });
      assertClose(await translator.encoderStates(texts), states);
      const found = await translator.translate(texts, { beam_size: 3, n_best: 2, max_length: 9, attention: true });
      assertClose(found.map(({ hypotheses }) => hypotheses.flatMap((h) => h.attention ?? [])), attention);
      await translator.release();
    });
  }
}

test("a bundle that was exported without states says how to get them", { skip }, async () => {
  const translator = await loadTranslator(bundles().paths[0]);
  await assert.rejects(translator.encoderStates(["a"]), { name: "OptionError", message: /--with encoder-state/ });
});

test("a text that is too long is refused by its number", { skip }, async () => {
  const translator = await loadTranslator(cases[0].bundle);
  await assert.rejects(translator.encoderStates(["a", "a b ".repeat(100)]), { name: "InputError", index: 1 });
});
