/** An encoder and a step graph in any engine: what the forms of the cache share. */

import type { Bundle } from "./bundle.js";
import { OptionError } from "./errors.js";
import { attentionOutputs } from "./manifest.js";
import type { Backend, Session } from "./session.js";
import type { Attention, AttentionOutput } from "./step_model.js";
import { ARRAYS, type Tensor, type TensorData } from "./tensors.js";

const ENCODER_STATE = "encoder_state"; // float32 [B, S, d_model]

export abstract class GraphPair {
  /** Whether steps are asked for what they look at; only where the graph gives it. */
  watchesAttention = false;
  attention: Attention = null;
  readonly attentionOutputs: readonly AttentionOutput[];
  private readonly hasStates: boolean;
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
    this.attentionOutputs = attentionOutputs(manifest);
    this.hasStates = manifest.graphs["encoder"]!.outputs.some(({ name }) => name === ENCODER_STATE);
    this.padId = manifest.source.pad_id;
    this.noBias = new Float32Array(this.shape.target_vocab_size);
    const layers = [...Array(this.shape.num_decoder_layers).keys()];
    this.crossNames = layers.flatMap((i) => [`${i}.encoder.key`, `${i}.encoder.value`]);
    this.selfNames = layers.flatMap((i) => [`${i}.decoder.key`, `${i}.decoder.value`]);
  }

  /**
   * The encoder's last hidden states: a vector of d_model for each id of a source.
   *
   * Throws OptionError where the bundle was exported without.
   */
  async encoderStates(source: readonly number[]): Promise<Float32Array[]> {
    if (!this.hasStates) {
      throw new OptionError("this bundle does not give the encoder's states; export it with --with encoder-state");
    }
    const found = await this.encoder.run(this.sourceInputs(source), { [ENCODER_STATE]: null });
    const states = this.taken(found[ENCODER_STATE]!) as Float32Array;
    const width = this.shape.d_model;
    return source.map((_, i) => states.slice(i * width, (i + 1) * width));
  }

  /** What the encoder reads of one source. */
  protected abstract sourceInputs(source: readonly number[]): Readonly<Record<string, Tensor>>;

  async release(): Promise<void> {
    await this.encoder.release();
    await this.decoder.release();
  }

  /** Runs the decoder for some outputs, and for what it looks at if that is watched, else null. */
  protected async decode(
    inputs: Readonly<Record<string, Tensor>>,
    outputs: Readonly<Record<string, Tensor | null>>,
  ): Promise<[Readonly<Record<string, Tensor>>, Attention]> {
    const watched = this.watchesAttention ? this.attentionOutputs.map(({ name }) => name) : [];
    const found = await this.decoder.run(inputs, { ...outputs, ...Object.fromEntries(watched.map((name) => [name, null])) });
    return [found, watched.length > 0 ? this.together(watched.map((name) => found[name]!)) : null];
  }

  /** The content of a tensor that is not needed any more. */
  protected taken(tensor: Tensor): TensorData {
    const { data } = tensor;
    const own = this.backend.memory === ARRAYS ? data : data.slice();
    this.backend.memory.free(tensor);
    return own;
  }

  /** Tensors [R, heads, S], one behind the other in each row. */
  private together(tensors: readonly Tensor[]): Float32Array {
    const rows = tensors[0]!.dims[0]!;
    const parts = tensors.map((tensor) => this.taken(tensor) as Float32Array);
    if (parts.length === 1) return parts[0]!;
    const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
    let place = 0;
    for (let row = 0; row < rows; row++) {
      for (const part of parts) {
        const width = part.length / rows;
        all.set(part.subarray(row * width, (row + 1) * width), place);
        place += width;
      }
    }
    return all;
  }
}
