/** Text in, text out, over any step model: tokenise, batch, search, detokenise, put back in order. */

import { InputError, OptionError } from "./errors.js";
import { lengthLimit, type Decoded, type FinishReason } from "./hypothesis.js";
import { checkOptions, type Hooks, type TranslationOptions } from "./options.js";
import { search } from "./search.js";
import { plainIds, type AttentionOutput, type IdList, type Request, type StepCache, type StepModel, type Target } from "./step_model.js";
import type { Tokenizer } from "./tokenizer.js";

/** By output of the decoder: for each of token_scores, for each head, a weight for each of source_tokens. */
export type HypothesisAttention = Readonly<Record<string, readonly (readonly Float32Array[])[]>>;

/** One translation of a text. */
export interface Hypothesis {
  readonly text: string;
  readonly tokens: readonly string[]; // written form of `ids`
  readonly ids: readonly number[]; // prefix and generated tokens, without `eos`
  readonly score: number; // sum of log-probabilities under the length penalty
  readonly token_scores: readonly number[]; // of each token (0 for a forced prefix), then of `eos` if it was reached
  readonly finish_reason: FinishReason;
  readonly truncated: boolean; // cut before `eos`
  readonly attention?: HypothesisAttention; // where it was asked for
}

/** The hypotheses of one text, best first; there is always at least one. */
export interface Translation {
  readonly text: string; // of the best
  readonly hypotheses: readonly Hypothesis[];
  readonly source_tokens?: readonly string[]; // written form of what the encoder read; where attention was asked for
}

/** A beginning of a target: text, or ids. */
export type Prefix = string | IdList;

/** How text becomes what the encoder reads, and what the decoder gives becomes text. */
export interface Vocabularies {
  readonly source: Tokenizer;
  readonly target: Tokenizer;
  readonly before: readonly number[]; // ids in front of every source
  readonly after: readonly number[]; // ids behind it
  readonly max_source_length: number;
}

/**
 * The translations of the texts, in their order. `prefixes` are beginnings of the targets, one for each text.
 *
 * Throws OptionError before any work, and InputError for a text that cannot be translated.
 */
export async function translate<C extends StepCache<C>>(
  model: StepModel<C>,
  vocabularies: Vocabularies,
  target: Target,
  texts: readonly string[],
  options: TranslationOptions,
  prefixes: readonly Prefix[] | undefined,
  hooks: Hooks,
): Promise<Translation[]> {
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string")) {
    throw new OptionError("translate takes a list of texts");
  }
  if (prefixes !== undefined && prefixes.length !== texts.length) {
    throw new OptionError(`${prefixes.length} prefixes for ${texts.length} texts`);
  }
  checkOptions(options, target);
  const sources = texts.map((text, i) => sourceIds(text, i, vocabularies, options, hooks));
  const given = prefixes?.map((prefix, i) => prefixIds(prefix, i, vocabularies.target, target)) ?? [];
  const requests = sources.flatMap((source, index) => requestsFor(source, given[index] ?? [], index, options));
  for (const request of requests) checkRoom(request, options, target);
  const decoded: Decoded[][] = texts.map(() => []);
  const order = new Map<Request, Decoded[]>();
  for (const batch of batches(requests, options)) {
    const found = await search(model, batch, options, target, hooks);
    batch.forEach((request, i) => order.set(request, found[i]!));
  }
  for (const request of requests) decoded[request.index]!.push(...order.get(request)!);
  return decoded.map((hypotheses, i) => {
    const given = sources[i]!;
    const shaped = hypotheses.map((hypothesis) => withAttention(hypothesis, model.attentionOutputs, given.length));
    const translation = translationOf(shaped, vocabularies.target);
    const attends = hypotheses.some(({ attention }) => attention !== undefined);
    return attends ? { ...translation, source_tokens: vocabularies.source.tokens(given) } : translation;
  });
}

/** Requests of similar length together, the longest first, `max_batch_tokens` source tokens at most, beams counted. */
export function* batches(requests: readonly Request[], options: TranslationOptions): Generator<Request[]> {
  let batch: Request[] = [];
  for (const request of [...requests].sort((a, b) => b.source.length - a.source.length)) {
    const width = (batch[0] ?? request).source.length;
    if (batch.length > 0 && (batch.length + 1) * width * options.beam_size > options.max_batch_tokens) {
      yield batch;
      batch = [];
    }
    batch.push(request);
  }
  if (batch.length > 0) yield batch;
}

/** One for each sample; none for a text without tokens. */
function requestsFor(source: number[], prefix: number[], index: number, options: TranslationOptions): Request[] {
  const samples = source.length === 0 ? 0 : options.sampling ? options.n_best : 1;
  return Array.from({ length: samples }, (_, sample) => ({ source, prefix, index, sample }));
}

/** What the encoder reads; empty for a text without tokens. Throws InputError. */
export function sourceIds(text: string, index: number, v: Vocabularies, options: TranslationOptions, hooks: Hooks): number[] {
  const ids = encode(v.source, text, index);
  if (ids.length === 0) return [];
  const room = v.max_source_length - v.before.length - v.after.length;
  if (ids.length > room) {
    if (!options.truncate_source) {
      const found = `has ${ids.length} tokens, the model takes ${room}`;
      throw new InputError(`${found}; split it, or allow truncate_source`, index);
    }
    const warning = { index, problem: `was cut from ${ids.length} to ${room} tokens` };
    if (hooks.warn) hooks.warn(warning);
    else console.warn(`tfexport: text ${index + 1} ${warning.problem}`);
  }
  return [...v.before, ...ids.slice(0, room), ...v.after];
}

function prefixIds(prefix: Prefix, index: number, tokenizer: Tokenizer, target: Target): number[] {
  if (typeof prefix === "string") return encode(tokenizer, prefix, index);
  const ids = plainIds(prefix);
  if (ids.every((id) => Number.isInteger(id) && id >= 0 && id < target.vocab_size)) return ids;
  throw new InputError(`has a prefix with ids outside of the vocabulary of ${target.vocab_size}`, index);
}

function encode(tokenizer: Tokenizer, text: string, index: number): number[] {
  try {
    return tokenizer.encode(text);
  } catch (error) {
    throw error instanceof InputError ? new InputError(error.problem, index) : error;
  }
}

function checkRoom({ source, prefix, index }: Request, options: TranslationOptions, target: Target): void {
  const forced = options.prefix_strength === 1 ? prefix.length : 0;
  const room = target.max_length - target.prefix_ids.length;
  if (forced >= room) {
    const problem = `has a prefix of ${forced} tokens, which leaves no room to generate; the model takes ${room}`;
    throw new InputError(problem, index);
  }
  if (lengthLimit(source.length, forced, options, target) < 1) {
    const limits = `max_length_ratio ${options.max_length_ratio} and max_length_extra ${options.max_length_extra}`;
    throw new InputError(`has ${source.length} tokens, for which ${limits} allow no output; raise one of them`, index);
  }
}

const EMPTY: Translation = {
  text: "",
  hypotheses: [{ text: "", tokens: [], ids: [], score: 0, token_scores: [], finish_reason: "eos", truncated: false }],
};

type Shaped = Omit<Decoded, "attention"> & Pick<Hypothesis, "attention">;

/** [A, S] of each token becomes what it is by output and head, on the source's own ids. */
function withAttention({ attention, ...rest }: Decoded, outputs: readonly AttentionOutput[], length: number): Shaped {
  if (attention === undefined) return rest;
  const all = outputs.reduce((sum, { heads }) => sum + heads, 0);
  const byOutput: Record<string, Float32Array[][]> = {};
  let first = 0;
  for (const { name, heads } of outputs) {
    const places = Array.from({ length: heads }, (_, head) => first + head);
    byOutput[name] = attention.map((weights) => {
      const width = weights.length / all;
      return places.map((place) => weights.slice(place * width, place * width + length));
    });
    first += heads;
  }
  return { ...rest, attention: byOutput };
}

function translationOf(decoded: readonly Shaped[], tokenizer: Tokenizer): Translation {
  if (decoded.length === 0) return EMPTY;
  const best = [...decoded].sort((a, b) => b.score - a.score); // stable: they are in order unless they are samples
  const hypotheses = best.map((d) => ({
    text: tokenizer.decode(d.ids),
    tokens: tokenizer.tokens(d.ids),
    ...d,
    truncated: d.finish_reason !== "eos",
  }));
  return { text: hypotheses[0]!.text, hypotheses };
}
