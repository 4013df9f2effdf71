/** The bundle's graphs as a step model, over any engine. See SPEC.md, "Graphs". */

import type { Bundle } from "./bundle.js";
import { GrowingCache, InPlaceCache, Memory } from "./cache.js";
import { FixedModel } from "./fixed_model.js";
import { GraphPair } from "./graph_pair.js";
import { cacheHead, type GraphInfo } from "./manifest.js";
import type { Candidates, StepCache, StepModel } from "./step_model.js";
import type { Tensor, TensorData, TensorMemory } from "./tensors.js";

// Tokens that the in-place form has room for at first. It doubles where a step writes in place; an engine that copies
// all of it in and out of every step gets this much more each time, close to what is used.
const CAPACITY = 16;

/** A graph to load, with the files that its weights are in. */
export interface Graph {
  readonly file: string;
  readonly model: Uint8Array;
  readonly weights: readonly { readonly file: string; readonly data: Uint8Array }[];
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

/** The memory of any form. */
interface AnyCache extends StepCache<AnyCache> {}

/** Both graphs of a bundle, whatever the form of its cache. */
export type BundleModel = GraphPair & StepModel<AnyCache>;

/** Throws BundleError for graphs that do not load. The bundle's graphs and weights are let go of. */
export async function openModel(bundle: Bundle, backend: Backend): Promise<BundleModel> {
  const { graphs, weights, requirements, cache } = bundle.manifest;
  const load = ({ file }: GraphInfo) =>
    backend.open({
      file: `${bundle.origin}/${file}`,
      model: bundle.bytes(file),
      weights: weights.map((name) => ({ file: name, data: bundle.bytes(name) })),
      path: bundle.files.path?.(file),
      made_for: requirements.onnxruntime,
    });
  const encoder = await load(graphs["encoder"]!);
  const decoder = await load(graphs["decoder"]!);
  bundle.forgetGraphs();
  const model = cache.form === "fixed" ? FixedModel : Model;
  return new model(bundle, encoder, decoder, backend);
}

type Cache = InPlaceCache | GrowingCache;

/** The forms whose tensors grow with what they hold. */
class Model extends GraphPair implements StepModel<Cache> {
  private readonly cacheHead: readonly [number, number];
  private readonly inPlace: boolean;

  constructor(bundle: Bundle, encoder: Session, decoder: Session, backend: Pick<Backend, "writesInPlace" | "memory">) {
    super(bundle, encoder, decoder, backend);
    this.cacheHead = cacheHead(bundle.manifest, bundle.origin);
    this.inPlace = bundle.manifest.cache.form === "in_place";
  }

  async start(sources: readonly (readonly number[])[], beamSize: number): Promise<Cache> {
    const memory = await this.encode(sources);
    const [heads, size] = this.cacheHead;
    const { num_decoder_layers: layers, max_target_length: limit } = this.shape;
    const rows = sources.length * beamSize;
    if (!this.inPlace) return GrowingCache.empty(memory, [rows, heads, size], layers);
    return InPlaceCache.empty(memory, [rows, heads, Math.min(CAPACITY, limit), size], layers);
  }

  async step(tokens: readonly number[], cache: Cache, bias: Float32Array, count: number): Promise<[Candidates, Cache]> {
    const wanted = ["candidate_scores", "candidate_ids"] as const;
    const [outputs, longer] = await this.run(wanted, tokens, cache, bias, count);
    const ids = Int32Array.from(this.taken(outputs["candidate_ids"]!) as BigInt64Array, Number);
    const scores = this.taken(outputs["candidate_scores"]!) as Float32Array;
    return [{ log_probs: byRow(scores, longer.places), ids: byRow(ids, longer.places) }, longer];
  }

  async stepLogits(tokens: readonly number[], cache: Cache): Promise<[Float32Array, Cache]> {
    const [outputs, longer] = await this.run(["logits"], tokens, cache, this.noBias, 1);
    return [byRow(this.taken(outputs["logits"]!) as Float32Array, longer.places), longer];
  }

  protected override sourceInputs(source: readonly number[]) {
    return this.paddedInputs([source]);
  }

  /** Runs the encoder graph for B sources. */
  private async encode(sources: readonly (readonly number[])[]): Promise<Memory> {
    const { input_ids, attention_mask } = this.paddedInputs(sources);
    const mask = this.backend.memory.hold(attention_mask);
    const wanted = this.crossNames.map((name) => `present.${name}`);
    const inputs = { input_ids, attention_mask: mask };
    const outputs = await this.encoder.run(inputs, Object.fromEntries(wanted.map((name) => [name, null])));
    return new Memory(this.backend.memory, wanted.map((name) => outputs[name]!), mask);
  }

  /** B sources, padded to the longest. */
  private paddedInputs(sources: readonly (readonly number[])[]): Readonly<Record<"input_ids" | "attention_mask", Tensor>> {
    const width = Math.max(...sources.map((source) => source.length));
    const dims = [sources.length, width];
    const ids = new BigInt64Array(sources.length * width).fill(BigInt(this.padId));
    const real = new Int32Array(ids.length);
    for (const [row, source] of sources.entries()) {
      ids.set(source.map(BigInt), row * width);
      real.fill(1, row * width, row * width + source.length);
    }
    return { input_ids: { type: "int64", data: ids, dims }, attention_mask: { type: "int32", data: real, dims } };
  }

  /** One step; what it gives is by place. */
  private async run(
    wanted: readonly string[],
    tokens: readonly number[],
    cache: Cache,
    bias: Float32Array,
    count: number,
  ): Promise<[Readonly<Record<string, Tensor>>, Cache]> {
    const rows = tokens.length;
    const ids = new BigInt64Array(rows);
    for (const [row, place] of cache.places.entries()) ids[place] = BigInt(tokens[row]!);
    const inputs: Record<string, Tensor> = {
      input_ids: { type: "int64", data: ids, dims: [rows, 1] },
      past_lengths: { type: "int32", data: cache.lengths, dims: [rows] },
      encoder_attention_mask: cache.memory.mask,
      logit_bias: { type: "float32", data: bias, dims: [1, bias.length] },
      num_candidates: { type: "int64", data: BigInt64Array.of(BigInt(count)), dims: [1] },
    };
    if (cache instanceof InPlaceCache) {
      cache.makeRoom(this.backend.writesInPlace ? cache.capacity : CAPACITY, this.shape.max_target_length);
      inputs["total_length"] = { type: "int32", data: Int32Array.of(cache.used + 1), dims: [1] };
    }
    const outputs: Record<string, Tensor | null> = Object.fromEntries(wanted.map((name) => [name, null]));
    for (const [i, name] of this.crossNames.entries()) inputs[`past_key_values.${name}`] = cache.memory.cross[i]!;
    const writesInPlace = this.inPlace && this.backend.writesInPlace;
    for (const [i, name] of this.selfNames.entries()) {
      inputs[`past_key_values.${name}`] = cache.layers[i]!;
      outputs[`present.${name}`] = writesInPlace ? cache.layers[i]! : null;
    }
    const [found, attention] = await this.decode(inputs, outputs);
    this.attention = attention && byRow(attention, cache.places);
    const layers = writesInPlace ? cache.layers : this.selfNames.map((name) => found[`present.${name}`]!);
    cache.advance(layers);
    return [found, cache];
  }
}

/** values[places], of R rows one behind the other. */
function byRow<T extends TensorData>(values: T, places: readonly number[]): T {
  if (places.every((place, row) => place === row)) return values;
  const width = values.length / places.length;
  const rows = values.slice() as Float32Array; // as all types: one array of numbers goes into another of its type
  for (const [row, place] of places.entries()) {
    rows.set(values.subarray(place * width, (place + 1) * width) as Float32Array, row * width);
  }
  return rows as T;
}
