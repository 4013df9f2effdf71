/** What a caller may ask of a translation, checked in one place. Names and meaning are those of SPEC.md. */

import { OptionError, type TruncationWarning } from "./errors.js";
import { plainIds, type IdList, type Target } from "./step_model.js";

export const LENGTH_PENALTIES = ["none", "average", "gnmt", "word_reward"] as const;
export type LengthPenaltyName = (typeof LENGTH_PENALTIES)[number];

/** Plain data: it can be sent to a worker or written as JSON. */
export interface TranslationOptions {
  // Search
  readonly beam_size: number; // 1 is greedy search
  readonly n_best: number; // hypotheses returned a sentence; at most beam_size unless sampling
  readonly length_penalty: LengthPenaltyName; // how the sum of log-probabilities becomes a score
  readonly alpha: number; // exponent of `average` and `gnmt`; 0 makes them `none`
  readonly length_offset: number; // `average` only: added to the length (1 counts the start token)
  readonly word_reward: number; // `word_reward` only: added to the score for each token
  readonly early_stopping: boolean; // stop at beam_size finished hypotheses, without proof that none better can follow

  // Length of the output in tokens, `eos` included, a hard prefix not
  readonly min_length: number; // `eos` is not allowed before this many other tokens
  readonly max_length: number | null; // absolute; null: only the ratio and the model limit
  readonly max_length_ratio: number | null; // times source tokens plus max_length_extra; null: no such limit
  readonly max_length_extra: number;

  // Sampling, instead of beam search
  readonly sampling: boolean; // draw tokens; n_best draws that many independent samples
  readonly temperature: number;
  readonly top_k: number; // 0: all
  readonly top_p: number; // 1: all
  readonly seed: number | bigint; // below 2^64

  // Rules on tokens
  readonly no_repeat_ngram_size: number; // 0: off; never blocks `eos`
  readonly repetition_penalty: number; // 1: off
  readonly suppress_tokens: IdList; // ids that are never generated, beside those of the manifest
  readonly prefix_strength: number; // target prefix: 1 forces it, smaller values mix it with the distribution

  // Work
  readonly truncate_source: boolean; // cut a source that is too long, with a warning, instead of refusing it
  readonly max_batch_tokens: number; // source tokens decoded together, padding and beams counted
}

export const DEFAULT_OPTIONS: TranslationOptions = {
  beam_size: 1,
  n_best: 1,
  length_penalty: "average",
  alpha: 1,
  length_offset: 0,
  word_reward: 0,
  early_stopping: false,
  min_length: 0,
  max_length: null,
  max_length_ratio: 2,
  max_length_extra: 50,
  sampling: false,
  temperature: 1,
  top_k: 0,
  top_p: 1,
  seed: 0,
  no_repeat_ngram_size: 0,
  repetition_penalty: 1,
  suppress_tokens: [],
  prefix_strength: 1,
  truncate_source: false,
  max_batch_tokens: 2048,
};

/** What a callback sees after each step of a sentence. */
export interface Progress {
  readonly sentence: number; // index in the list that was given to translate
  readonly sample: number; // which of several samples; 0 in beam search
  readonly tokens: readonly number[]; // ids of the best hypothesis so far
  readonly score: number; // sum of its log-probabilities
}

/** What the search calls while it runs. */
export interface Hooks {
  /** Called after every step; true cancels the sentence, and what it has so far is returned. */
  readonly callback?: ((progress: Progress) => boolean | void) | undefined;
  /** Ends the whole call: its promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
  /** Hears of texts that were cut; without it, the console does. */
  readonly warn?: ((warning: TruncationWarning) => void) | undefined;
}

/** `base` with some options changed; undefined changes nothing. Throws OptionError for names that do not exist. */
export function withChanges(base: TranslationOptions, changes: Partial<TranslationOptions>): TranslationOptions {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined);
  const unknown = given.map(([name]) => name).filter((name) => !Object.hasOwn(DEFAULT_OPTIONS, name));
  if (unknown.length > 0) throw new OptionError(`unknown generation option ${unknown.sort().join(", ")}`);
  return { ...base, ...Object.fromEntries(given) };
}

/** All contradictions at once, before any work. Throws OptionError. */
export function checkOptions(options: TranslationOptions, target: Target): void {
  const found = contradictions(options, target.vocab_size);
  const problems = found.length > 0 ? found : nothingLeft(options, target);
  if (problems.length > 0) throw new OptionError(problems.join("; "));
}

type Numeric = {
  [K in keyof TranslationOptions]: TranslationOptions[K] extends number | null ? K : never;
}[keyof TranslationOptions];

// Least value of whole numbers; lowest and highest of others.
const WHOLE: Partial<Record<Numeric, number>> = {
  beam_size: 1,
  n_best: 1,
  length_offset: 0,
  min_length: 0,
  max_length: 1,
  max_length_extra: 0,
  top_k: 0,
  no_repeat_ngram_size: 0,
  max_batch_tokens: 1,
};
const RANGES: Partial<Record<Numeric, readonly [number, number]>> = {
  alpha: [-10, 10],
  word_reward: [-1e6, 1e6],
  max_length_ratio: [0, Infinity],
  temperature: [1e-9, 1e9],
  repetition_penalty: [1e-3, 1e3],
};
const FRACTIONS: readonly Numeric[] = ["top_p", "prefix_strength"]; // above 0, at most 1
const FLAGS = ["early_stopping", "sampling", "truncate_source"] as const;

function contradictions(o: TranslationOptions, vocabSize: number): string[] {
  const ids = plainIds(o.suppress_tokens);
  const rules: [boolean, string][] = [
    ...Object.entries(WHOLE).map(([name, least]): [boolean, string] => {
      const value = o[name as Numeric];
      const fine = (value === null && name === "max_length") || (Number.isInteger(value) && (value as number) >= least);
      return [fine, `${name} must be a whole number from ${least}, not ${value}`];
    }),
    ...Object.entries(RANGES).map(([name, [low, high]]): [boolean, string] => {
      const value = o[name as Numeric];
      const fine = (value === null && name === "max_length_ratio") || isWithin(value, low, high);
      return [fine, `${name} must be in [${low}, ${high}], not ${value}`];
    }),
    ...FRACTIONS.map((name): [boolean, string] => [
      isWithin(o[name], Number.MIN_VALUE, 1),
      `${name} must be in (0, 1], not ${o[name]}`,
    ]),
    ...FLAGS.map((name): [boolean, string] => [
      typeof o[name] === "boolean",
      `${name} must be true or false, not ${String(o[name])}`,
    ]),
    [o.sampling || !(o.n_best > o.beam_size), `n_best ${o.n_best} needs a beam_size of at least ${o.n_best}`],
    [!o.sampling || o.beam_size === 1, "sampling and beam search exclude each other; leave beam_size at 1"],
    [
      LENGTH_PENALTIES.includes(o.length_penalty),
      `length_penalty must be one of ${LENGTH_PENALTIES.join(", ")}, not ${o.length_penalty}`,
    ],
    [
      o.max_length === null || !(o.min_length > o.max_length),
      `min_length ${o.min_length} is above max_length ${o.max_length}`,
    ],
    [isSeed(o.seed), `seed must be a whole number in [0, 2^64), from 2^53 on a BigInt, not ${o.seed}`],
    [
      ids.every((id) => Number.isInteger(id) && id >= 0 && id < vocabSize),
      `suppress_tokens must be ids below the vocabulary size ${vocabSize}`,
    ],
    [
      !o.sampling || o.prefix_strength === 1,
      "sampling and a soft prefix exclude each other; leave prefix_strength at 1",
    ],
  ];
  return rules.filter(([fine]) => !fine).map(([, problem]) => problem);
}

/** A step must always find a token that it may generate. */
function nothingLeft(o: TranslationOptions, target: Target): string[] {
  const forbidden = new Set([...target.never_generated, ...plainIds(o.suppress_tokens)]);
  if (o.min_length > 0) forbidden.add(target.eos_id);
  if (target.vocab_size > forbidden.size) return [];
  return ["suppress_tokens, min_length and the bundle together leave no token to generate"];
}

function isWithin(value: unknown, low: number, high: number): boolean {
  return typeof value === "number" && value >= low && value <= high;
}

function isSeed(seed: unknown): boolean {
  if (typeof seed === "bigint") return seed >= 0n && seed < 1n << 64n;
  return Number.isSafeInteger(seed) && (seed as number) >= 0;
}
