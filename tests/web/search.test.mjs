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

test("a draw walks through the distribution in order, and top_p cuts its tail", () => {
  const logits = Float32Array.from([0.5, 0.25, 0.25], Math.log);
  const all = { temperature: 1, top_k: 0, top_p: 1 };
  assert.deepEqual([0, 0.49, 0.51, 0.74, 0.76, 0.999].map((u) => drawToken(logits, all, u)), [0, 0, 1, 1, 2, 2]);
  assert.deepEqual([0, 0.6, 0.7, 0.999].map((u) => drawToken(logits, { ...all, top_p: 0.6 }, u)), [0, 0, 1, 1]);
  assert.equal(drawToken(logits, { ...all, top_k: 1 }, 0.999), 0);
});

/** SPEC.md, "Sampling", word by word. */
function drawnBySorting(logits, { temperature, top_k, top_p }, u) {
  let order = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
  if (top_k > 0) order = order.slice(0, top_k);
  let sum = 0;
  const first = logits[order[0]] / temperature;
  const mass = order.map((id) => (sum += Math.exp(logits[id] / temperature - first)));
  const kept = top_p < 1 ? mass.slice(0, mass.findIndex((m) => m >= top_p * sum) + 1) : mass;
  return order[kept.findIndex((m) => m > u * kept.at(-1))];
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
    const u = choice(0, 1 - 2 ** -24, random());
    assert.equal(drawToken(logits, cuts, u), drawnBySorting(logits, cuts, u), JSON.stringify({ ...cuts, u, round }));
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
