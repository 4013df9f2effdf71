/**
 * The decoder's memory of every row, in both forms of SPEC.md, "Cache".
 *
 * Letters: B sentences, R rows, S source length, P used length, C capacity, H heads, D head size, L layers.
 */

import type { StepCache } from "./step_model.js";

export type TensorData = Float32Array | Uint16Array | Int32Array | BigInt64Array | Int8Array | Uint8Array;

/** Any tensor, in the layout of ONNX Runtime. */
export interface Tensor {
  readonly type: string;
  readonly data: TensorData;
  readonly dims: readonly number[];
}

/** What the encoder left for the decoder, once per sentence. */
export interface Memory {
  readonly cross: readonly Tensor[]; // keys and values by turns, each [B, H, S, D]; 2L of them
  readonly mask: Tensor; // int32 [B, S], 1 on real tokens
}

/** `layers` are [R, H, C, D] in the in-place form, of which `lengths` are used, and [R, H, P, D] in the growing form. */
export class Cache implements StepCache<Cache> {
  constructor(
    readonly memory: Memory,
    readonly layers: readonly Tensor[], // keys and values by turns; 2L of them
    readonly lengths: Int32Array, // [R] used length of each row
  ) {}

  static empty(memory: Memory, rows: number, layers: number, heads: number, headSize: number, capacity: number): Cache {
    const dims = [rows, heads, capacity, headSize];
    const tensors = Array.from({ length: 2 * layers }, () => zeros(memory.cross[0]!, dims));
    return new Cache(memory, tensors, new Int32Array(rows));
  }

  get capacity(): number {
    return this.layers[0]!.dims[2]!;
  }

  /** The most tokens that a row holds. */
  get used(): number {
    return this.lengths.reduce((a, b) => Math.max(a, b), 0);
  }

  /** This cache with one more token in every row. */
  after(layers: readonly Tensor[]): Cache {
    return new Cache(this.memory, layers, this.lengths.map((length) => length + 1));
  }

  /** In-place form: this cache if one more token fits, else a larger copy. */
  withRoom(more: number, limit: number): Cache {
    if (this.used < this.capacity) return this;
    const capacity = Math.min(this.capacity + more, limit);
    return new Cache(this.memory, this.layers.map((layer) => widened(layer, capacity)), this.lengths);
  }

  select(rows: readonly number[]): Cache {
    const before = this.lengths.length;
    if (rows.length === before && isInPlace(rows)) return this;
    const beams = before / this.memory.mask.dims[0]!;
    const sentences = Array.from({ length: rows.length / beams }, (_, b) => Math.floor(rows[b * beams]! / beams));
    const layers = this.layers.map((layer) => moved(layer, rows));
    return new Cache(selected(this.memory, sentences), layers, Int32Array.from(rows, (row) => this.lengths[row]!));
  }
}

function selected(memory: Memory, sentences: readonly number[]): Memory {
  if (sentences.length === memory.mask.dims[0] && isInPlace(sentences)) return memory;
  return { cross: memory.cross.map((tensor) => moved(tensor, sentences)), mask: moved(memory.mask, sentences) };
}

/** tensor[order], written into the front of the same memory; only what changes its place is copied. */
function moved(tensor: Tensor, order: readonly number[]): Tensor {
  const { data, dims } = tensor;
  const stride = data.length / dims[0]!;
  const places = [...order.keys()].filter((place) => order[place] !== place);
  const copies = places.map((place) => data.slice(order[place]! * stride, (order[place]! + 1) * stride));
  for (const [i, place] of places.entries()) put(data, copies[i]!, place * stride);
  return { type: tensor.type, data: data.subarray(0, order.length * stride), dims: [order.length, ...dims.slice(1)] };
}

function widened(tensor: Tensor, capacity: number): Tensor {
  const [rows, heads, old, size] = tensor.dims as [number, number, number, number];
  const wide = zeros(tensor, [rows, heads, capacity, size]);
  for (let i = 0; i < rows * heads; i++) {
    put(wide.data, tensor.data.subarray(i * old * size, (i + 1) * old * size), i * capacity * size);
  }
  return wide;
}

function zeros(like: Tensor, dims: readonly number[]): Tensor {
  const Data = like.data.constructor as new (size: number) => TensorData;
  return { type: like.type, data: new Data(dims.reduce((a, b) => a * b, 1)), dims };
}

function put(data: TensorData, values: TensorData, place: number): void {
  (data as Float32Array).set(values as Float32Array, place); // both come from one tensor, so from one type
}


function isInPlace(order: readonly number[]): boolean {
  return order.every((old, place) => old === place);
}
