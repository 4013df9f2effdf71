/**
 * The decoder's memory of every row, in both forms of SPEC.md, "Cache".
 *
 * Letters: B sentences, R rows, S source length, P used length, C capacity, H heads, D head size, L layers.
 */

import type { StepCache } from "./step_model.js";
import type { Tensor, TensorData, TensorMemory } from "./tensors.js";

/** What the encoder left for the decoder, once per sentence. */
export interface Memory {
  readonly cross: readonly Tensor[]; // keys and values by turns, each [B, H, S, D]; 2L of them
  readonly mask: Tensor; // int32 [B, S], 1 on real tokens
}

/** `layers` are [R, H, C, D] in the in-place form, of which `lengths` are used, and [R, H, P, D] in the growing form. */
export class Cache implements StepCache<Cache> {
  constructor(
    private readonly place: TensorMemory,
    public memory: Memory,
    public layers: readonly Tensor[], // keys and values by turns; 2L of them
    public lengths: Int32Array, // [R] used length of each row
  ) {}

  static empty(
    place: TensorMemory,
    memory: Memory,
    dims: readonly [rows: number, heads: number, capacity: number, headSize: number],
    layers: number,
  ): Cache {
    const { type } = memory.cross[0]!;
    const tensors = Array.from({ length: 2 * layers }, () => place.allocate(type, dims));
    return new Cache(place, memory, tensors, new Int32Array(dims[0]));
  }

  get capacity(): number {
    return this.layers[0]!.dims[2]!;
  }

  /** The most tokens that a row holds. */
  get used(): number {
    return this.lengths.reduce((a, b) => Math.max(a, b), 0);
  }

  /** Takes what a step gave: one more token in every row. Memory that it does not use is freed. */
  advance(layers: readonly Tensor[]): Cache {
    if (layers !== this.layers) for (const layer of this.layers) this.place.free(layer);
    this.layers = layers;
    this.lengths = this.lengths.map((length) => length + 1);
    return this;
  }

  /** In-place form: the used part in a larger one. */
  widen(capacity: number): void {
    this.layers = this.layers.map((layer) => this.widened(layer, capacity));
  }

  select(rows: readonly number[]): Cache {
    const before = this.lengths.length;
    if (rows.length === before && isInPlace(rows)) return this;
    const beams = before / this.memory.mask.dims[0]!;
    const sentences = Array.from({ length: rows.length / beams }, (_, b) => Math.floor(rows[b * beams]! / beams));
    this.layers = this.layers.map((layer) => this.moved(layer, rows));
    this.lengths = Int32Array.from(rows, (row) => this.lengths[row]!);
    this.memory = this.selected(sentences);
    return this;
  }

  release(): void {
    for (const tensor of [...this.layers, ...this.memory.cross, this.memory.mask]) this.place.free(tensor);
  }

  private selected(sentences: readonly number[]): Memory {
    const { cross, mask } = this.memory;
    if (sentences.length === mask.dims[0] && isInPlace(sentences)) return this.memory;
    return { cross: cross.map((tensor) => this.moved(tensor, sentences)), mask: this.moved(mask, sentences) };
  }

  /** tensor[order], written into the front of the same memory; only what changes its place is copied. */
  private moved(tensor: Tensor, order: readonly number[]): Tensor {
    const { data, dims } = tensor;
    const stride = data.length / dims[0]!;
    const places = [...order.keys()].filter((place) => order[place] !== place);
    const copies = places.map((place) => data.slice(order[place]! * stride, (order[place]! + 1) * stride));
    for (const [i, place] of places.entries()) put(data, copies[i]!, place * stride);
    return order.length === dims[0] ? tensor : this.place.front(tensor, order.length);
  }

  private widened(tensor: Tensor, capacity: number): Tensor {
    const [rows, heads, old, size] = tensor.dims as [number, number, number, number];
    const wide = this.place.allocate(tensor.type, [rows, heads, capacity, size]);
    const [from, to] = [tensor.data, wide.data];
    for (let i = 0; i < rows * heads; i++) {
      put(to, from.subarray(i * old * size, (i + 1) * old * size), i * capacity * size);
    }
    this.place.free(tensor);
    return wide;
  }
}

function put(data: TensorData, values: TensorData, place: number): void {
  (data as Float32Array).set(values as Float32Array, place); // both come from one tensor, so from one type
}

function isInPlace(order: readonly number[]): boolean {
  return order.every((old, place) => old === place);
}
