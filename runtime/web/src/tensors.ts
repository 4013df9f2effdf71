/** Tensors, and where they live: in JavaScript's own arrays, or in the memory of an engine. */

export type TensorData = Float32Array | Uint16Array | Int32Array | BigInt64Array | Int8Array | Uint8Array;

/** Any tensor, in the layout of ONNX Runtime. */
export interface Tensor {
  readonly type: string;
  /** In an engine's memory a view, which holds until the engine runs again. */
  readonly data: TensorData;
  readonly dims: readonly number[];
}

/** Makes and frees tensors that an engine can use without a copy. */
export interface TensorMemory {
  /** Of any content. */
  allocate(type: string, dims: readonly number[]): Tensor;
  /** A tensor with the content of that one, which may live elsewhere. */
  hold(tensor: Tensor): Tensor;
  /** The first rows of a tensor, in its place; only the returned one is valid from now on. */
  front(tensor: Tensor, rows: number): Tensor;
  free(tensor: Tensor): void;
}

export const ARRAY_TYPES = {
  float32: Float32Array,
  float16: Uint16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  int8: Int8Array,
  uint8: Uint8Array,
} as const;

export function sizeOf(dims: readonly number[]): number {
  return dims.reduce((a, b) => a * b, 1);
}

/** JavaScript's own arrays, which nobody needs to free. */
export const ARRAYS: TensorMemory = {
  allocate: (type, dims) => ({ type, data: new ARRAY_TYPES[type as keyof typeof ARRAY_TYPES](sizeOf(dims)), dims }),
  hold: (tensor) => tensor,
  front: ({ type, data, dims }, rows) => {
    const shorter = [rows, ...dims.slice(1)];
    return { type, data: data.subarray(0, sizeOf(shorter)), dims: shorter };
  },
  free: () => undefined,
};
