// The golden cases of each bundle, in both engines that Node has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { DEFAULT_OPTIONS, loadTranslator } from "../../runtime/web/dist/node.js";
import { bundles } from "./environment.mjs";
import { assertGolden } from "./golden.mjs";

const given = bundles();
test("bundles are there", { skip: given.reason }, () => assert.ok(given.paths.length > 0));

for (const path of given.paths) {
  for (const engine of ["native", "wasm"]) {
    test(`${basename(path)}, ${engine}: ids equal, scores within 1e-4`, async () => {
      const { cases } = JSON.parse(readFileSync(`${path}/golden.json`, "utf8"));
      const translator = await loadTranslator(path, { engine, threads: 1 });
      for (const expected of cases) {
        const options = { ...DEFAULT_OPTIONS, truncate_source: true, ...expected.options, warn: () => undefined };
        const [found] = await translator.translate([expected.text], options);
        assertGolden(found.hypotheses, expected);
      }
      await translator.release();
    });

    test(`${basename(path)}, ${engine}: a batch gives what its sentences give alone`, async () => {
      const { cases } = JSON.parse(readFileSync(`${path}/golden.json`, "utf8"));
      const translator = await loadTranslator(path, { engine, threads: 1 });
      for (const options of [{}, { beam_size: 4, n_best: 4 }, { sampling: true, n_best: 2, seed: 7, top_k: 20 }]) {
        const all = { truncate_source: true, max_length: 24, warn: () => undefined, ...options };
        const texts = ["", ...new Set(cases.map((c) => c.text))].slice(0, 8);
        const together = await translator.translate(texts, all);
        for (const [i, text] of texts.entries()) {
          const [alone] = await translator.translate([text], all);
          assert.deepEqual(together[i].hypotheses.map((h) => h.ids), alone.hypotheses.map((h) => h.ids));
        }
      }
      await translator.release();
    });
  }
}
