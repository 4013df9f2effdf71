/** The bundle's graphs as a step model, over any engine. See SPEC.md, "Graphs". */

import type { Bundle } from "./bundle.js";
import { Cache, type Memory, type Tensor } from "./cache.js";
import { cacheHead } from "./manifest.js";
import type { Candidates, StepModel } from "./step_model.js";

// The in-place form holds this many tokens more each time. Engines in WebAssembly copy the whole capacity in and out of
// every step, so it stays close to what is used.
const CAPACITY_STEP = 16;

/** A graph to load, with the file that its weights are in. */
export interface Graph {
  readonly file: string;
  readonly model: Uint8Array;
  readonly weights: { readonly file: string; readonly data: Uint8Array };
  readonly path: string | undefined; // of the graph on disk, the weights beside it
  readonly made_for: string; // lowest version of ONNX Runtime
}

/** A loaded graph. */
export interface Session {
  /** Runs it; `outputs` names what is wanted, with the memory to write to where that is known. */
  run(
    inputs: Readonly<Record<string, Tensor>>,
    outputs: Readonly<Record<string, Tensor | null>>,
  ): Promise<Readonly<Record<string, Tensor>>>;
  release(): Promise<void>;
}

/** An engine that runs graphs. */
export interface Backend {
  readonly name: string;
  /** True where a step can write into the arrays it was given, so that the cache need not be copied. */
  readonly writesInPlace: boolean;
  open(graph: Graph): Promise<Session>;
}

/** Throws BundleError for graphs that do not load. The bundle's graphs and weights are let go of. */
export async function openModel(bundle: Bundle, backend: Backend): Promise<Model> {
  const { graphs, weights, requirements } = bundle.manifest;
  const load = ({ file }: { file: string }) =>
    backend.open({
      file: `${bundle.origin}/${file}`,
      model: bundle.bytes(file),
      weights: { file: weights, data: bundle.bytes(weights) },
      path: bundle.files.path?.(file),
      made_for: requirements.onnxruntime,
    });
  const encoder = await load(graphs.encoder);
  const decoder = await load(graphs.decoder);
  bundle.forgetGraphs();
  return new Model(bundle, encoder, decoder, backend.writesInPlace);
}

export class Model implements StepModel<Cache> {
  private readonly shape;
  private readonly cacheHead: readonly [number, number];
  private readonly padId: number;
  private readonly inPlace: boolean;
  private readonly noBias: Float32Array;
  private readonly crossNames: readonly string[];
  private readonly selfNames: readonly string[];

  constructor(
    { manifest, origin }: Bundle,
    private readonly encoder: Session,
    private readonly decoder: Session,
    private readonly writesInPlace: boolean,
  ) {
    this.shape = manifest.model;
    this.cacheHead = cacheHead(manifest, origin);
    this.padId = manifest.source.pad_id;
    this.inPlace = manifest.cache.form === "in_place";
    this.noBias = new Float32Array(this.shape.target_vocab_size);
    const layers = [...Array(this.shape.num_decoder_layers).keys()];
    this.crossNames = layers.flatMap((i) => [`${i}.encoder.key`, `${i}.encoder.value`]);
    this.selfNames = layers.flatMap((i) => [`${i}.decoder.key`, `${i}.decoder.value`]);
  }

  async start(sources: readonly (readonly number[])[], beamSize: number): Promise<Cache> {
    const memory = await this.encode(sources);
    const [heads, size] = this.cacheHead;
    const capacity = this.inPlace ? Math.min(CAPACITY_STEP, this.shape.max_target_length) : 0;
    return Cache.empty(memory, sources.length * beamSize, this.shape.num_decoder_layers, heads, size, capacity);
  }

  async step(tokens: readonly number[], cache: Cache, bias: Float32Array, count: number): Promise<[Candidates, Cache]> {
    const wanted = ["candidate_scores", "candidate_ids"] as const;
    const [outputs, longer] = await this.run(wanted, tokens, cache, bias, count);
    const ids = Int32Array.from(outputs["candidate_ids"]!.data as BigInt64Array, Number);
    return [{ log_probs: outputs["candidate_scores"]!.data as Float32Array, ids }, longer];
  }

  async stepLogits(tokens: readonly number[], cache: Cache): Promise<[Float32Array, Cache]> {
    const [outputs, longer] = await this.run(["logits"], tokens, cache, this.noBias, 1);
    return [outputs["logits"]!.data as Float32Array, longer];
  }

  async release(): Promise<void> {
    await this.encoder.release();
    await this.decoder.release();
  }

  /** Pads B sources to the longest and runs the encoder graph. */
  private async encode(sources: readonly (readonly number[])[]): Promise<Memory> {
    const width = Math.max(...sources.map((source) => source.length));
    const dims = [sources.length, width];
    const ids = new BigInt64Array(sources.length * width).fill(BigInt(this.padId));
    const real = new Int32Array(ids.length);
    for (const [row, source] of sources.entries()) {
      ids.set(source.map(BigInt), row * width);
      real.fill(1, row * width, row * width + source.length);
    }
    const mask = { type: "int32", data: real, dims };
    const wanted = this.crossNames.map((name) => `present.${name}`);
    const inputs = { input_ids: { type: "int64", data: ids, dims }, attention_mask: mask };
    const outputs = await this.encoder.run(inputs, Object.fromEntries(wanted.map((name) => [name, null])));
    return { cross: wanted.map((name) => outputs[name]!), mask };
  }

  private async run(
    wanted: readonly string[],
    tokens: readonly number[],
    given: Cache,
    bias: Float32Array,
    count: number,
  ): Promise<[Readonly<Record<string, Tensor>>, Cache]> {
    const cache = this.inPlace ? given.withRoom(CAPACITY_STEP, this.shape.max_target_length) : given;
    const rows = tokens.length;
    const inputs: Record<string, Tensor> = {
      input_ids: { type: "int64", data: BigInt64Array.from(tokens, BigInt), dims: [rows, 1] },
      past_lengths: { type: "int32", data: cache.lengths, dims: [rows] },
      encoder_attention_mask: cache.memory.mask,
      logit_bias: { type: "float32", data: bias, dims: [1, bias.length] },
      num_candidates: { type: "int64", data: BigInt64Array.of(BigInt(count)), dims: [1] },
    };
    if (this.inPlace) inputs["total_length"] = { type: "int32", data: Int32Array.of(cache.used + 1), dims: [1] };
    const outputs: Record<string, Tensor | null> = Object.fromEntries(wanted.map((name) => [name, null]));
    for (const [i, name] of this.crossNames.entries()) inputs[`past_key_values.${name}`] = cache.memory.cross[i]!;
    const writesInPlace = this.inPlace && this.writesInPlace;
    for (const [i, name] of this.selfNames.entries()) {
      inputs[`past_key_values.${name}`] = cache.layers[i]!;
      outputs[`present.${name}`] = writesInPlace ? cache.layers[i]! : null;
    }
    const found = await this.decoder.run(inputs, outputs);
    const layers = writesInPlace ? cache.layers : this.selfNames.map((name) => found[`present.${name}`]!);
    return [found, cache.after(layers)];
  }
}
