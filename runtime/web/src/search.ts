/**
 * The search: one loop for greedy, beam and sampling. See SPEC.md, "Search".
 *
 * Letters: B sentences, K beams, R = B*K rows, N candidates a row.
 */

import { ModelOutputError } from "./errors.js";
import { SentenceSearch, type Candidate, type Decoded } from "./hypothesis.js";
import type { Hooks, TranslationOptions } from "./options.js";
import { makeProposer } from "./proposers.js";
import type { Attention, Candidates, Request, StepCache, StepModel, Target } from "./step_model.js";
import { Turn } from "./turn.js";

/** Decodes all requests together; for each the hypotheses, best first. The options are checked already. */
export async function search<C extends StepCache<C>>(
  model: StepModel<C>,
  requests: readonly Request[],
  options: TranslationOptions,
  target: Target,
  hooks: Hooks = {},
): Promise<Decoded[][]> {
  const sentences = requests.map((request) => new SentenceSearch(request, options, target));
  const proposer = makeProposer(model, options, target);
  const turn = new Turn(hooks.signal);
  let live = [...sentences];
  let cache = await model.start(live.map((s) => s.request.source), options.beam_size);
  try {
    while (live.length > 0) {
      await turn.end();
      const tokens = live.flatMap((s) => s.tokens());
      const [candidates, longer] = await proposer.propose(tokens, cache, live);
      cache = longer;
      const parents = live.map((sentence, b) => {
        const seen = attentionOf(model.attention, b, live.length);
        return sentence.advance(ranked(sentence, b, candidates, tokens.length), seen);
      });
      report(live, hooks);
      const slots = unfinished(live);
      live = slots.map((slot) => live[slot]!);
      if (live.length > 0) cache = cache.select(rowsOf(parents, slots));
    }
  } finally {
    cache.release();
  }
  return sentences.map((sentence) => sentence.result());
}

/** The 2K best continuations of sentence b, best first; of equal totals the lower beam, in it the lower id. */
function ranked(sentence: SentenceSearch, b: number, candidates: Candidates, rows: number): Candidate[] {
  const count = candidates.ids.length / rows; // N
  const beams = sentence.sums.length;
  const found: Candidate[] = [];
  for (let beam = 0; beam < beams; beam++) {
    for (let i = (b * beams + beam) * count, end = i + count; i < end; i++) {
      const logProb = candidates.log_probs[i]!;
      const total = sentence.sums[beam]! + logProb;
      if (Number.isNaN(total)) throw notANumber(sentence);
      found.push({ beam, token: candidates.ids[i]!, logProb, total });
    }
  }
  // Two rows without hope differ by NaN, which sort takes for equal.
  return found.sort((one, other) => other.total - one.total || 0).slice(0, 2 * beams);
}

/** The part of sentence b, [K, A, S]. */
function attentionOf(attention: Attention, b: number, sentences: number): Attention {
  if (attention === null) return null;
  const size = attention.length / sentences;
  return attention.subarray(b * size, (b + 1) * size);
}

function notANumber(sentence: SentenceSearch): ModelOutputError {
  const place = sentence.request.index + 1;
  return new ModelOutputError(`the decoder gave NaN for sentence ${place}; verify the bundle with \`tfexport verify\``);
}

function report(live: readonly SentenceSearch[], { callback }: Hooks): void {
  if (callback === undefined) return;
  for (const sentence of live) {
    const [tokens, score] = sentence.bestSoFar();
    if (callback({ sentence: sentence.request.index, sample: sentence.request.sample, tokens, score })) sentence.cancel();
  }
}

/** The old place of each unfinished sentence. The last ones fill the gaps: little of the cache moves. */
function unfinished(live: readonly SentenceSearch[]): number[] {
  const places = [...live.keys()].filter((i) => !live[i]!.done);
  const last = [...places];
  return places.map((_, i) => (live[i]!.done ? last.pop()! : i));
}

/** Old row of every new row, [R']. */
function rowsOf(parents: readonly (readonly number[])[], slots: readonly number[]): number[] {
  return slots.flatMap((slot) => parents[slot]!.map((beam) => slot * parents[slot]!.length + beam));
}
