/** The bundle's graphs as a step model, over any engine. See SPEC.md, "Graphs". */

import type { Bundle } from "./bundle.js";
import { Cache, type Memory } from "./cache.js";
import { cacheHead } from "./manifest.js";
import type { Attention, Candidates, StepModel } from "./step_model.js";
import { ARRAYS, type Tensor, type TensorData, type TensorMemory } from "./tensors.js";

const ATTENTION = "cross_attention"; // float32 [R, heads, S]

// Tokens that the in-place form has room for at first. It doubles where a step writes in place; an engine that copies
// all of it in and out of every step gets this much more each time, close to what is used.
const CAPACITY = 16;

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
  /** True where a step can write into the tensors it was given, so that the cache need not be copied. */
  readonly writesInPlace: boolean;
  /** Where tensors live that go from step to step. */
  readonly memory: TensorMemory;
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
  return new Model(bundle, encoder, decoder, backend);
}

export class Model implements StepModel<Cache> {
  /** Whether steps are asked for what they look at; only where the graph gives it. */
  watchesAttention = false;
  attention: Attention = null;
  readonly hasAttention: boolean;
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
    private readonly backend: Pick<Backend, "writesInPlace" | "memory">,
  ) {
    this.shape = manifest.model;
    this.hasAttention = manifest.graphs.decoder.outputs.some(({ name }) => name === ATTENTION);
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
    const capacity = this.inPlace ? Math.min(CAPACITY, this.shape.max_target_length) : 0;
    const dims = [sources.length * beamSize, heads, capacity, size] as const;
    return Cache.empty(this.backend.memory, memory, dims, this.shape.num_decoder_layers);
  }

  async step(tokens: readonly number[], cache: Cache, bias: Float32Array, count: number): Promise<[Candidates, Cache]> {
    const wanted = ["candidate_scores", "candidate_ids"] as const;
    const [outputs, longer] = await this.run(wanted, tokens, cache, bias, count);
    const ids = Int32Array.from(this.taken(outputs["candidate_ids"]!) as BigInt64Array, Number);
    return [{ log_probs: this.taken(outputs["candidate_scores"]!) as Float32Array, ids }, longer];
  }

  async stepLogits(tokens: readonly number[], cache: Cache): Promise<[Float32Array, Cache]> {
    const [outputs, longer] = await this.run(["logits"], tokens, cache, this.noBias, 1);
    return [this.taken(outputs["logits"]!) as Float32Array, longer];
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
    const mask = this.backend.memory.hold({ type: "int32", data: real, dims });
    const wanted = this.crossNames.map((name) => `present.${name}`);
    const inputs = { input_ids: { type: "int64", data: ids, dims }, attention_mask: mask };
    const outputs = await this.encoder.run(inputs, Object.fromEntries(wanted.map((name) => [name, null])));
    return { cross: wanted.map((name) => outputs[name]!), mask };
  }

  private async run(
    wanted: readonly string[],
    tokens: readonly number[],
    cache: Cache,
    bias: Float32Array,
    count: number,
  ): Promise<[Readonly<Record<string, Tensor>>, Cache]> {
    if (this.inPlace && cache.used === cache.capacity) this.widen(cache);
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
    const attends = this.watchesAttention && this.hasAttention;
    if (attends) outputs[ATTENTION] = null;
    for (const [i, name] of this.crossNames.entries()) inputs[`past_key_values.${name}`] = cache.memory.cross[i]!;
    const writesInPlace = this.inPlace && this.backend.writesInPlace;
    for (const [i, name] of this.selfNames.entries()) {
      inputs[`past_key_values.${name}`] = cache.layers[i]!;
      outputs[`present.${name}`] = writesInPlace ? cache.layers[i]! : null;
    }
    const found = await this.decoder.run(inputs, outputs);
    this.attention = attends ? this.meanOverHeads(found[ATTENTION]!) : null;
    const layers = writesInPlace ? cache.layers : this.selfNames.map((name) => found[`present.${name}`]!);
    return [found, cache.advance(layers)];
  }

  private widen(cache: Cache): void {
    const more = this.backend.writesInPlace ? cache.capacity : CAPACITY;
    cache.widen(Math.min(cache.capacity + more, this.shape.max_target_length));
  }

  /** [R, heads, S] -> [R, S] */
  private meanOverHeads(tensor: Tensor): Float32Array {
    const [rows, heads, width] = tensor.dims as [number, number, number];
    const weights = this.taken(tensor) as Float32Array;
    const mean = new Float32Array(rows * width);
    for (let i = 0; i < weights.length; i++) {
      mean[Math.floor(i / (heads * width)) * width + (i % width)]! += weights[i]! / heads;
    }
    return mean;
  }

  /** The content of a tensor that is not needed any more. */
  private taken(tensor: Tensor): TensorData {
    const { data } = tensor;
    const own = this.backend.memory === ARRAYS ? data : data.slice();
    this.backend.memory.free(tensor);
    return own;
  }
}
