/** An encoder and a step graph in any engine: what the forms of the cache share. */

import type { Bundle } from "./bundle.js";
import type { Backend, Session } from "./session.js";
import type { Attention } from "./step_model.js";
import { ARRAYS, type Tensor, type TensorData } from "./tensors.js";

const ATTENTION = "cross_attention"; // float32 [R, heads, S]

export class GraphPair {
  /** Whether steps are asked for what they look at; only where the graph gives it. */
  watchesAttention = false;
  attention: Attention = null;
  readonly hasAttention: boolean;
  protected readonly shape;
  protected readonly padId: number;
  protected readonly noBias: Float32Array;
  protected readonly crossNames: readonly string[];
  protected readonly selfNames: readonly string[];

  constructor(
    { manifest }: Bundle,
    protected readonly encoder: Session,
    protected readonly decoder: Session,
    protected readonly backend: Pick<Backend, "writesInPlace" | "memory">,
  ) {
    this.shape = manifest.model;
    this.hasAttention = manifest.graphs["decoder"]!.outputs.some(({ name }) => name === ATTENTION);
    this.padId = manifest.source.pad_id;
    this.noBias = new Float32Array(this.shape.target_vocab_size);
    const layers = [...Array(this.shape.num_decoder_layers).keys()];
    this.crossNames = layers.flatMap((i) => [`${i}.encoder.key`, `${i}.encoder.value`]);
    this.selfNames = layers.flatMap((i) => [`${i}.decoder.key`, `${i}.decoder.value`]);
  }

  async release(): Promise<void> {
    await this.encoder.release();
    await this.decoder.release();
  }

  /** Runs the decoder for some outputs, and for what it looks at if that is watched: [R, S], else null. */
  protected async decode(
    inputs: Readonly<Record<string, Tensor>>,
    outputs: Readonly<Record<string, Tensor | null>>,
  ): Promise<[Readonly<Record<string, Tensor>>, Attention]> {
    if (!this.watchesAttention || !this.hasAttention) return [await this.decoder.run(inputs, outputs), null];
    const found = await this.decoder.run(inputs, { ...outputs, [ATTENTION]: null });
    return [found, this.meanOverHeads(found[ATTENTION]!)];
  }

  /** The content of a tensor that is not needed any more. */
  protected taken(tensor: Tensor): TensorData {
    const { data } = tensor;
    const own = this.backend.memory === ARRAYS ? data : data.slice();
    this.backend.memory.free(tensor);
    return own;
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
}
