/**
 * What the search needs of a model, and what it is asked: the seam between the search and any engine.
 *
 * Letters: B sentences, K beams, R = B*K rows, N candidates a row, V vocabulary. Row of beam k of sentence b: b*K + k.
 */

/** Token ids as callers may give them. Inside, they are plain numbers. */
export type IdList = readonly number[] | Int32Array | BigInt64Array;

export function plainIds(ids: IdList): number[] {
  return Array.from(ids as Iterable<number | bigint>, Number);
}

/** The best next tokens of every row, best first; of equals, the lower id first. */
export interface Candidates {
  readonly log_probs: Float32Array; // [R, N]
  readonly ids: ArrayLike<number>; // [R, N]
}

/** What a step looked at, where it is asked for: [R, A, S], with A the heads of all outputs that say so. */
export type Attention = Float32Array | null;

/** An output that says what a step looks at, by a number of heads. */
export interface AttentionOutput {
  readonly name: string;
  readonly heads: number;
}

/** What the model remembers of every row. A value: after `select` or a step, only the returned one is valid. */
export interface StepCache<C> {
  /** rows [R']: the new row r continues the old row rows[r]. Rows of a sentence stay together. */
  select(rows: readonly number[]): C;

  /** Frees what an engine holds for it. */
  release(): void;
}

/** A model that decodes step by step. */
export interface StepModel<C extends StepCache<C>> {
  /** Encodes B sources and returns the cache of length 0 for B * beamSize rows. */
  start(sources: readonly (readonly number[])[], beamSize: number): Promise<C>;

  /** None: the model was exported without. */
  readonly attentionOutputs: readonly AttentionOutput[];

  /** Of the newest step, if the model was asked for it and has it. */
  readonly attention: Attention;

  /** tokens [R], the newest of each row; bias [V] is added to the logits. Returns `count` candidates a row. */
  step(tokens: readonly number[], cache: C, bias: Float32Array, count: number): Promise<[Candidates, C]>;

  /** As `step`, but returns all logits [R, V] as the model gives them. */
  stepLogits(tokens: readonly number[], cache: C): Promise<[Float32Array, C]>;
}

/** What the search must know of the target vocabulary and the model. */
export interface Target {
  readonly vocab_size: number;
  readonly start_id: number;
  readonly eos_id: number;
  readonly never_generated: readonly number[];
  readonly max_length: number; // positions of the decoder: prefixes and generated tokens together
  readonly prefix_ids: readonly number[]; // read behind the start token, before any prefix of a caller; in no result
}

/** One sentence to decode. */
export interface Request {
  readonly source: readonly number[]; // ids as the encoder reads them; not empty
  readonly prefix: readonly number[]; // target ids that are given
  readonly index: number; // its place in the caller's list; callbacks name it
  readonly sample: number; // which of several samples of the sentence
}
