/** Where the candidates of a step come from: the graph itself, the graph's logits under rules, or a draw. */

import { drawToken } from "./draw.js";
import type { SentenceSearch } from "./hypothesis.js";
import type { TranslationOptions } from "./options.js";
import { drawBlock, fnv1a64, seedWords, type Words } from "./random.js";
import { addInPlace, applyRules, commonBias, logSoftmaxInPlace, mixPrefixInPlace, needsAllLogits } from "./rules.js";
import type { Candidates, StepCache, StepModel, Target } from "./step_model.js";

/** The strategy that differs between ways of searching. */
export interface Proposer<C> {
  /** One step for tokens [R] of the live sentences. */
  propose(tokens: readonly number[], cache: C, live: readonly SentenceSearch[]): Promise<[Candidates, C]>;
}

export function makeProposer<C extends StepCache<C>>(
  model: StepModel<C>,
  options: TranslationOptions,
  target: Target,
): Proposer<C> {
  if (options.sampling) return new SampledCandidates(model, options, target);
  if (needsAllLogits(options)) return new RuledCandidates(model, options, target);
  return new GraphCandidates(model, options, target);
}

/** K + 1 of each row: without `eos`, K live on. */
function candidateCount(options: TranslationOptions, target: Target): number {
  return Math.min(options.beam_size + 1, target.vocab_size);
}

/** What no row may generate now: with and without `eos`. */
class CommonBiases {
  private readonly open: Float32Array;
  private readonly withoutEos: Float32Array;

  constructor(
    private readonly options: TranslationOptions,
    target: Target,
  ) {
    this.open = commonBias(options, target, options.min_length);
    this.withoutEos = commonBias(options, target, 0);
  }

  of(sentence: SentenceSearch): Float32Array {
    return sentence.generated < this.options.min_length ? this.withoutEos : this.open;
  }
}

/** The fast way: the graph ranks the tokens, and only K + 1 a row leave it. */
class GraphCandidates<C extends StepCache<C>> implements Proposer<C> {
  private readonly count: number;
  private readonly biases: CommonBiases;

  constructor(
    private readonly model: StepModel<C>,
    options: TranslationOptions,
    target: Target,
  ) {
    this.count = candidateCount(options, target);
    this.biases = new CommonBiases(options, target);
  }

  async propose(tokens: readonly number[], cache: C, live: readonly SentenceSearch[]): Promise<[Candidates, C]> {
    const biases = live.map((sentence) => this.biases.of(sentence));
    if (biases.every((bias) => bias === biases[0])) return this.model.step(tokens, cache, biases[0]!, this.count);
    // Prefixes of unequal length: some sentences may end and others may not.
    const [logits, longer] = await this.model.stepLogits(tokens, cache);
    const rows = rowsOf(logits, live);
    const logProbs = rows.map(({ row, b }) => logSoftmaxInPlace(addInPlace(row.slice(), biases[b]!)));
    return [bestCandidates(logProbs, this.count), longer];
  }
}

/** All logits come to the host, because a rule looks at what each row has generated. */
class RuledCandidates<C extends StepCache<C>> implements Proposer<C> {
  private readonly biases: CommonBiases;

  constructor(
    private readonly model: StepModel<C>,
    private readonly options: TranslationOptions,
    private readonly target: Target,
  ) {
    this.biases = new CommonBiases(options, target);
  }

  async propose(tokens: readonly number[], cache: C, live: readonly SentenceSearch[]): Promise<[Candidates, C]> {
    const [logits, longer] = await this.model.stepLogits(tokens, cache);
    const logProbs = rowsOf(logits, live).map(({ row, b, beam }) => this.row(row, live[b]!, beam));
    return [bestCandidates(logProbs, candidateCount(this.options, this.target)), longer];
  }

  private row(logits: Float32Array, sentence: SentenceSearch, beam: number): Float32Array {
    const history = sentence.history(beam);
    const ruled = applyRules(logits, history, this.biases.of(sentence), this.options, this.target);
    const logProbs = logSoftmaxInPlace(ruled);
    const wanted = sentence.request.prefix[history.length];
    const onTrack = wanted !== undefined && history.every((id, i) => id === sentence.request.prefix[i]);
    if (this.options.prefix_strength === 1 || !onTrack) return logProbs;
    return mixPrefixInPlace(logProbs, wanted, this.options.prefix_strength);
  }
}

/** One token a row, drawn from its distribution with the specified generator. */
class SampledCandidates<C extends StepCache<C>> implements Proposer<C> {
  private readonly biases: CommonBiases;
  private readonly seed: Words;

  constructor(
    private readonly model: StepModel<C>,
    private readonly options: TranslationOptions,
    private readonly target: Target,
  ) {
    this.biases = new CommonBiases(options, target);
    this.seed = seedWords(options.seed);
  }

  async propose(tokens: readonly number[], cache: C, live: readonly SentenceSearch[]): Promise<[Candidates, C]> {
    const [logits, longer] = await this.model.stepLogits(tokens, cache);
    const rows = rowsOf(logits, live);
    const log_probs = new Float32Array(rows.length);
    const ids = rows.map(({ row, b, beam }, r) => {
      const [token, logProb] = this.draw(row, live[b]!, beam);
      log_probs[r] = logProb;
      return token;
    });
    return [{ log_probs, ids }, longer];
  }

  private draw(logits: Float32Array, sentence: SentenceSearch, beam: number): [number, number] {
    const ruled = applyRules(logits, sentence.history(beam), this.biases.of(sentence), this.options, this.target);
    const { sample, source } = sentence.request;
    const block = drawBlock(this.seed, sentence.generated, sample, fnv1a64(source));
    const token = drawToken(ruled, this.options, block);
    return [token, logSoftmaxInPlace(ruled)[token]!];
  }
}

/** The `count` best of every row [V], best first; of equals the lower id. */
export function bestCandidates(rows: readonly Float32Array[], count: number): Candidates {
  const log_probs = new Float32Array(rows.length * count);
  const ids = new Int32Array(rows.length * count);
  for (const [r, row] of rows.entries()) {
    const end = r * count + count;
    let used = r * count; // where this row's list ends so far; it is kept in order
    for (let id = 0; id < row.length; id++) {
      const value = row[id]!;
      if (used === end && value <= log_probs[end - 1]!) continue; // NaN goes on, so that the search finds it
      let place = used === end ? end - 1 : used++;
      for (; place > r * count && log_probs[place - 1]! < value; place--) {
        log_probs[place] = log_probs[place - 1]!;
        ids[place] = ids[place - 1]!;
      }
      log_probs[place] = value;
      ids[place] = id;
    }
  }
  return { log_probs, ids };
}

interface Row {
  readonly row: Float32Array; // [V]
  readonly b: number; // place of its sentence
  readonly beam: number;
}

function rowsOf(logits: Float32Array, live: readonly SentenceSearch[]): Row[] {
  const beams = live[0]!.sums.length;
  const size = logits.length / (live.length * beams);
  return Array.from({ length: live.length * beams }, (_, r) => ({
    row: logits.subarray(r * size, (r + 1) * size),
    b: Math.floor(r / beams),
    beam: r % beams,
  }));
}
