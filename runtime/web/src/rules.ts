/** Rules on tokens: what they do to the logits of one row before the softmax. See SPEC.md, "Rules on tokens". */

import type { TranslationOptions } from "./options.js";
import { plainIds, type Target } from "./step_model.js";

/** True when a rule depends on what a row has generated, so that a bias common to all rows cannot express it. */
export function needsAllLogits(o: TranslationOptions): boolean {
  return o.no_repeat_ngram_size > 0 || o.repetition_penalty !== 1 || o.prefix_strength !== 1;
}

/** -Infinity on the tokens that no row may generate now, 0 elsewhere. [V] */
export function commonBias(options: TranslationOptions, target: Target, generated: number): Float32Array {
  const bias = new Float32Array(target.vocab_size);
  for (const id of target.never_generated) bias[id] = -Infinity;
  for (const id of plainIds(options.suppress_tokens)) bias[id] = -Infinity;
  if (generated < options.min_length) bias[target.eos_id] = -Infinity;
  return bias;
}

/** The logits [V] of one row after all rules, in the order of the specification. `history` has the prefix. */
export function applyRules(
  logits: Float32Array,
  history: readonly number[],
  bias: Float32Array,
  options: TranslationOptions,
  target: Target,
): Float32Array {
  const ruled = logits.slice();
  if (options.repetition_penalty !== 1) {
    const penalty = Math.fround(options.repetition_penalty);
    for (const id of new Set(history)) ruled[id] = ruled[id]! > 0 ? ruled[id]! / penalty : ruled[id]! * penalty;
  }
  for (const id of repeatingTokens(history, options.no_repeat_ngram_size)) {
    if (id !== target.eos_id) ruled[id] = -Infinity;
  }
  addInPlace(ruled, bias);
  if (ruled.every((logit) => logit === -Infinity)) ruled[target.eos_id] = 0; // all is forbidden: the hypothesis ends
  return ruled;
}

/** The tokens that would complete an n-gram of that size which the history holds already. */
export function repeatingTokens(history: readonly number[], size: number): Set<number> {
  const found = new Set<number>();
  if (size === 0) return found;
  const last = history.length - size + 1; // where the newest size - 1 tokens begin
  for (let start = 0; start < last; start++) {
    let same = true;
    for (let i = 0; i < size - 1 && same; i++) same = history[start + i] === history[last + i];
    if (same) found.add(history[start + size - 1]!);
  }
  return found;
}

/** Natural logarithm, float32. Written over the logits. */
export function logSoftmaxInPlace(logits: Float32Array): Float32Array {
  let largest = -Infinity;
  for (const logit of logits) if (logit > largest) largest = logit;
  let sum = 0;
  for (let i = 0; i < logits.length; i++) {
    logits[i] = logits[i]! - largest;
    sum += Math.exp(logits[i]!);
  }
  const normalizer = Math.fround(Math.log(sum));
  for (let i = 0; i < logits.length; i++) logits[i] = logits[i]! - normalizer;
  return logits;
}

/** log((1 - strength) * p + strength * [token is wanted]): a soft prefix. Written over the log-probabilities. */
export function mixPrefixInPlace(logProbs: Float32Array, wanted: number, strength: number): Float32Array {
  const rest = Math.fround(Math.log1p(-strength));
  for (let i = 0; i < logProbs.length; i++) logProbs[i] = logProbs[i]! + rest;
  logProbs[wanted] = Math.min(0, logAddExp(logProbs[wanted]!, Math.fround(Math.log(strength))));
  return logProbs;
}

export function addInPlace(values: Float32Array, bias: Float32Array): Float32Array {
  for (let i = 0; i < values.length; i++) values[i] = values[i]! + bias[i]!;
  return values;
}

function logAddExp(a: number, b: number): number {
  const larger = Math.max(a, b);
  return larger + Math.log1p(Math.exp(Math.min(a, b) - larger));
}
