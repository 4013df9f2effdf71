// The search over tables, against results of the Python runtime, and its parts against known answers.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { drawToken } from "../../runtime/web/dist/draw.js";
import { DEFAULT_OPTIONS } from "../../runtime/web/dist/options.js";
import { bestCandidates } from "../../runtime/web/dist/proposers.js";
import { fnv1a64, philox4x32 } from "../../runtime/web/dist/random.js";
import { applyRules, logSoftmaxInPlace, repeatingTokens } from "../../runtime/web/dist/rules.js";
import { search } from "../../runtime/web/dist/search.js";
import { fixtures } from "./environment.mjs";
import { TableModel, hashedLogits } from "./table_model.mjs";

const hex = (words) => [...words].map((word) => word.toString(16).padStart(8, "0")).join(" ");
const target = { vocab_size: 6, start_id: 1, eos_id: 2, never_generated: [0, 1], max_length: 20, prefix_ids: [] };
const request = (source, changes = {}) => ({ source, prefix: [], index: 0, sample: 0, ...changes });

test("Philox gives the known answers", () => {
  assert.equal(hex(philox4x32([0, 0, 0, 0], [0, 0])), "6627e8d5 e169c58d bc57ac4c 9b00dbd8");
  const counter = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344];
  assert.equal(hex(philox4x32(counter, [0xa4093822, 0x299f31d0])), "d16cfe09 94fdcceb 5001e420 24126ea1");
});

test("FNV-1a gives the known answer", () => {
  const [low, high] = fnv1a64([0x626f6f66]);
  assert.equal(hex([high, low]), "dd120e79 0c2512af");
});

test("a repeated n-gram is found, and nothing in a history that is too short", () => {
  assert.deepEqual([...repeatingTokens([3, 4, 5, 3, 4], 3)], [5]);
  assert.deepEqual([...repeatingTokens([3, 4, 3], 1)].sort(), [3, 4]);
  assert.deepEqual([...repeatingTokens([3, 4], 3)], []);
});

test("where all tokens are forbidden, the hypothesis ends", () => {
  const options = { ...DEFAULT_OPTIONS, no_repeat_ngram_size: 1 };
  const bias = Float32Array.of(-Infinity, -Infinity, -Infinity, 0, 0, 0);
  const ruled = applyRules(new Float32Array(6), [3, 4, 5], bias, options, target);
  assert.deepEqual([...ruled], [-Infinity, -Infinity, 0, -Infinity, -Infinity, -Infinity]);
});

test("a repetition penalty divides what is above zero and multiplies what is below", () => {
  const options = { ...DEFAULT_OPTIONS, repetition_penalty: 2 };
  const ruled = applyRules(Float32Array.of(0, 0, 0, 3, -3, 1), [3, 4, 3], new Float32Array(6), options, target);
  assert.deepEqual([...ruled], [0, 0, 0, 1.5, -6, 1]);
});

test("the best of each row come first, of equals the lower id", () => {
  const { ids, log_probs } = bestCandidates([Float32Array.of(1, 3, 2, 3), Float32Array.of(0, 0, 0, 0)], 3);
  assert.deepEqual([...ids], [1, 3, 2, 0, 1, 2]);
  assert.deepEqual([...log_probs], [3, 3, 2, 0, 0, 0]);
});

test("the log-softmax of equal logits is the logarithm of their share", () => {
  for (const value of logSoftmaxInPlace(new Float32Array(8).fill(5))) assert.equal(value, Math.fround(-Math.log(8)));
});

test("only what top_k and top_p keep is drawn", () => {
  const all = { temperature: 1, top_k: 0, top_p: 1 };
  const drawn = (logits, cuts) => {
    const block = (step) => philox4x32([step, 0, 0, 0], [1, 0]);
    const tokens = Array.from({ length: 400 }, (_, step) => drawToken(Float32Array.from(logits), { ...all, ...cuts }, block(step)));
    return [...new Set(tokens)].sort();
  };
  assert.deepEqual(drawn([0, 0, 0, 0], {}), [0, 1, 2, 3]);
  assert.deepEqual(drawn([-Infinity, 0, -Infinity, 0], {}), [1, 3]);
  assert.deepEqual(drawn([0, 0, 0, 0], { top_k: 2 }), [0, 1]);
  assert.deepEqual(drawn([0, 0, 0, 0], { top_p: 0.5 }), [0, 1]);
  assert.deepEqual(drawn([0, 1, 2, 3], { top_k: 3, top_p: 1e-9 }), [3]);
  assert.deepEqual(drawn([NaN, 1, 2, 3], {}), [0]);
});

/** SPEC.md, "Sampling", word by word. */
function drawnBySorting(logits, { temperature, top_k, top_p }, a) {
  const largest = Math.max(...logits);
  const w = [...logits].map((z) => Math.exp((z - largest) / temperature));
  let order = [...logits.keys()].sort((i, j) => logits[j] - logits[i] || i - j);
  if (top_k > 0) order = order.slice(0, top_k);
  let sum = 0;
  const mass = order.map((id) => (sum += w[id]));
  const kept = top_p < 1 ? order.slice(0, mass.findIndex((m) => m >= top_p * sum) + 1) : order;
  const word = (id) => philox4x32([Math.floor(id / 4), 0, a[2], a[3]], [a[0], a[1]])[id % 4];
  const time = (id) => -Math.log((word(id) + 0.5) / 2 ** 32) / w[id];
  return kept.reduce((best, id) => (time(id) < time(best) || (time(id) === time(best) && id < best) ? id : best));
}

test("a draw puts few tokens in order, and gives what sorting all of them gives", () => {
  let word = 0;
  const random = () => (philox4x32([word++, 0, 0, 0], [9, 9])[0] >>> 8) * 2 ** -24;
  const choice = (...values) => values[Math.floor(random() * values.length)];
  for (let round = 0; round < 600; round++) {
    const spread = choice(0.01, 1, 8);
    const levels = choice(3, 2 ** 20); // few levels: many equal logits
    const logits = Float32Array.from({ length: choice(1, 2, 7, 300, 900) }, () => {
      return random() < 0.1 ? -Infinity : spread * (Math.floor(random() * levels) / levels - 0.5);
    });
    logits[Math.floor(random() * logits.length)] = 0;
    const cuts = { temperature: choice(0.1, 1, 3), top_k: choice(0, 0, 1, 5, 250, 1000), top_p: choice(1, 1, 0.9, 0.3, 1e-9) };
    const block = philox4x32([round, 1, 2, 3], [9, 9]);
    assert.equal(drawToken(logits, cuts, block), drawnBySorting(logits, cuts, block), JSON.stringify({ ...cuts, round }));
  }
});

test("of equal totals the lower beam goes on, in it the lower token", async () => {
  const flat = new TableModel(() => new Float32Array(6), 6, 1);
  const options = { ...DEFAULT_OPTIONS, beam_size: 2, n_best: 2, min_length: 3, max_length: 3 };
  const [found] = await search(flat, [request([7])], options, target);
  assert.deepEqual(found.map((h) => h.ids), [[3, 3, 3], [3, 3, 4]]);
});

test("NaN stops the search with the number of the sentence", async () => {
  const broken = new TableModel((source) => new Float32Array(6).fill(source[0] === 9 ? NaN : 0), 6, 1);
  const requests = [request([7]), request([9], { index: 4 })];
  for (const changes of [{}, { sampling: true }, { repetition_penalty: 2 }]) {
    const options = { ...DEFAULT_OPTIONS, ...changes };
    await assert.rejects(search(broken, requests, options, target), { name: "ModelOutputError", message: /sentence 5;/ });
  }
});

test("an aborted signal ends the search with its reason", async () => {
  const abort = new AbortController();
  const endless = new TableModel(() => Float32Array.of(0, 0, -9, 1, 0, 0), 6, 1);
  let steps = 0;
  const callback = () => void (++steps === 3 && abort.abort(new Error("enough")));
  const hooks = { callback, signal: abort.signal };
  const far = { ...target, max_length: 1000 };
  const options = { ...DEFAULT_OPTIONS, max_length_ratio: null };
  await assert.rejects(search(endless, [request([7])], options, far, hooks), { message: "enough" });
  assert.equal(steps, 3);
});

const file = fixtures("search.json");
const cases = file.path ? JSON.parse(readFileSync(file.path, "utf8")) : [];

test("the fixture is there", { skip: file.reason }, () => assert.ok(cases.length >= 100));

for (const [number, c] of cases.entries()) {
  const what = c.options.sampling ? "sampling" : `beam ${c.options.beam_size}`;
  test(`search ${number} of Python: ${what}`, async () => {
    const model = new TableModel(hashedLogits(c.seed, c.target.vocab_size, c.holes), c.target.vocab_size, c.target.start_id);
    const seen = [];
    const callback = ({ sentence, sample, tokens, score }) => {
      const step = seen.filter((call) => call[0] === sentence && call[1] === sample).length;
      seen.push([sentence, sample, tokens, score]);
      return c.cancels.some((cancel) => cancel[0] === sentence && cancel[1] === step);
    };
    const options = { ...c.options, seed: BigInt(c.options.seed) };
    const found = await search(model, c.requests, options, c.target, { callback });
    const shape = (results) => results.map((result) => result.map((h) => [h.ids, h.finish_reason]));
    assert.deepEqual(shape(found), shape(c.results));
    assert.deepEqual(seen.map((call) => call.slice(0, 3)), c.seen.map((call) => call.slice(0, 3)));
    const numbers = (results) => results.flatMap((result) => result.flatMap((h) => [h.score, ...h.token_scores]));
    const expected = numbers(c.results);
    numbers(found).forEach((value, i) => assert.ok(Math.abs(value - expected[i]) < 1e-5 * (1 + Math.abs(expected[i]))));
  });
}
