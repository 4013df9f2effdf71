/** Graphs whose every shape is a number, run over any number of rows and lengths. See SPEC.md, "Cache". */

import type { Bundle } from "./bundle.js";
import { BundleError } from "./errors.js";
import { FixedCache, type Sentence } from "./fixed_cache.js";
import { GraphPair } from "./graph_pair.js";
import type { Manifest } from "./manifest.js";
import { bestCandidates } from "./proposers.js";
import { addInPlace, logSoftmaxInPlace } from "./rules.js";
import type { Backend, Session } from "./session.js";
import type { Candidates, StepModel } from "./step_model.js";
import type { Tensor, TensorData } from "./tensors.js";

/** Sentences are encoded one by one; the rows of the decoder run in chunks of R, the last one filled up. */
export class FixedModel extends GraphPair implements StepModel<FixedCache> {
  private readonly sourceLength: number; // S
  private readonly candidates: number; // N, of the graph
  private readonly layerDims: readonly [number, number, number, number]; // [R, H, T, D]

  constructor(bundle: Bundle, encoder: Session, decoder: Session, backend: Pick<Backend, "writesInPlace" | "memory">) {
    super(bundle, encoder, decoder, backend);
    const { manifest, origin } = bundle;
    this.sourceLength = numbers(manifest, origin, "encoder", "input_ids", 2)[1]!;
    this.candidates = numbers(manifest, origin, "decoder", "candidate_scores", 2)[1]!;
    const [rows, heads, room, size] = numbers(manifest, origin, "decoder", "past_key_values.0.decoder.key", 4);
    this.layerDims = [rows!, heads!, room!, size!];
  }

  async start(sources: readonly (readonly number[])[], beamSize: number): Promise<FixedCache> {
    const sentences: Sentence[] = [];
    for (const source of sources) sentences.push(await this.encode(source));
    return new FixedCache(this.backend.memory, this.backend.writesInPlace, sentences, this.layerDims, beamSize);
  }

  /** More candidates than the graph gives are ranked here. */
  async step(
    tokens: readonly number[],
    cache: FixedCache,
    bias: Float32Array,
    count: number,
  ): Promise<[Candidates, FixedCache]> {
    if (count > this.candidates) {
      const [logits] = await this.stepLogits(tokens, cache);
      const rows = tokens.map((_, row) => logits.subarray(row * bias.length, (row + 1) * bias.length));
      return [bestCandidates(rows.map((row) => logSoftmaxInPlace(addInPlace(row, bias))), count), cache];
    }
    const log_probs = new Float32Array(tokens.length * count);
    const ids = new Int32Array(log_probs.length);
    await this.run(["candidate_scores", "candidate_ids"], tokens, cache, bias, ([scores, found], first, rows) => {
      for (let row = 0; row < rows; row++) {
        for (let i = 0; i < count; i++) {
          log_probs[(first + row) * count + i] = Number(scores![row * this.candidates + i]);
          ids[(first + row) * count + i] = Number(found![row * this.candidates + i]);
        }
      }
    });
    return [{ log_probs, ids }, cache];
  }

  async stepLogits(tokens: readonly number[], cache: FixedCache): Promise<[Float32Array, FixedCache]> {
    const width = this.shape.target_vocab_size;
    const all = new Float32Array(tokens.length * width);
    await this.run(["logits"], tokens, cache, this.noBias, ([logits], first, rows) => {
      all.set((logits as Float32Array).subarray(0, rows * width), first * width);
    });
    return [all, cache];
  }

  /** Runs the encoder for one source. */
  private async encode(source: readonly number[]): Promise<Sentence> {
    const inputs = this.sourceInputs(source);
    const wanted = this.crossNames.map((name) => `present.${name}`);
    const outputs = await this.encoder.run(inputs, Object.fromEntries(wanted.map((name) => [name, null])));
    return { cross: wanted.map((name) => outputs[name]!), mask: inputs.attention_mask.data as Int32Array };
  }

  /** Padded to S. */
  protected override sourceInputs(source: readonly number[]): Readonly<Record<"input_ids" | "attention_mask", Tensor>> {
    const dims = [1, this.sourceLength];
    const ids = new Int32Array(this.sourceLength).fill(this.padId);
    ids.set(source);
    const mask = new Int32Array(this.sourceLength).fill(1, 0, source.length);
    return { input_ids: { type: "int32", data: ids, dims }, attention_mask: { type: "int32", data: mask, dims } };
  }

  /** One step of every chunk; `take` gets the wanted outputs, the first row that they are of, and how many are real. */
  private async run(
    wanted: readonly string[],
    tokens: readonly number[],
    cache: FixedCache,
    bias: Float32Array,
    take: (outputs: readonly TensorData[], first: number, rows: number) => void,
  ): Promise<void> {
    const size = this.layerDims[0];
    const attention: Float32Array[] = [];
    for (const [place, chunk] of cache.chunks.entries()) {
      const first = place * size;
      const real = cache.realRows(place);
      const ids = new Int32Array(size);
      const lengths = new Int32Array(size);
      ids.set(tokens.slice(first, first + real));
      lengths.set(cache.lengths.subarray(first, first + real));
      const inputs: Record<string, Tensor> = {
        input_ids: { type: "int32", data: ids, dims: [size, 1] },
        past_lengths: { type: "int32", data: lengths, dims: [size] },
        encoder_attention_mask: chunk.mask,
        logit_bias: { type: "float32", data: bias, dims: [1, bias.length] },
      };
      const outputs: Record<string, Tensor | null> = Object.fromEntries(wanted.map((name) => [name, null]));
      for (const [i, name] of this.crossNames.entries()) inputs[`past_key_values.${name}`] = chunk.cross[i]!;
      for (const [i, name] of this.selfNames.entries()) {
        inputs[`past_key_values.${name}`] = chunk.layers[i]!;
        outputs[`present.${name}`] = chunk.spare[i] ?? null;
      }
      const [found, seen] = await this.decode(inputs, outputs);
      cache.advance(chunk, this.selfNames.map((name) => found[`present.${name}`]!));
      take(wanted.map((name) => this.taken(found[name]!)), first, real);
      if (seen !== null) attention.push(seen.subarray(0, (real * seen.length) / size));
    }
    cache.lengths = cache.lengths.map((length) => length + 1);
    this.attention = attention.length > 0 ? joined(attention) : null;
  }
}

function joined(parts: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length;
  }
  return all;
}

/** The shape of an input or output of a graph. */
function numbers(manifest: Manifest, origin: string, graph: string, name: string, axes: number): number[] {
  const { inputs, outputs } = manifest.graphs[graph]!;
  const fits = [...inputs, ...outputs].find(
    (tensor) => tensor.name === name && tensor.shape.length === axes && tensor.shape.every(Number.isInteger),
  );
  if (fits !== undefined) return fits.shape as number[];
  throw new BundleError(
    `${origin}: ${graph} graph: no ${name} of ${axes} axes whose sizes are numbers; export the model again`,
  );
}
