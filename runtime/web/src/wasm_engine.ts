/** ONNX Runtime in WebAssembly without copies: tensors stay in its memory between steps, and caches grow in place. */

import { BundleError } from "./errors.js";
import type { Backend, Graph, Session } from "./session.js";
import { ARRAY_TYPES, sizeOf, type Tensor, type TensorData, type TensorMemory } from "./tensors.js";
import { bytesOf, check, writeText, type WasmModule } from "./wasm_module.js";

const TYPES = { float32: 1, uint8: 2, int8: 3, int32: 6, int64: 7, float16: 10 } as const; // as ONNX numbers them
type TypeName = keyof typeof TYPES;
const NAMES = new Map<number, string>(Object.entries(TYPES).map(([name, number]) => [number, name]));

const ALL_OPTIMIZATIONS = 99;
const SEQUENTIAL = 0;
const ERRORS_ONLY = 3;
const ON_CPU = 1;
const POINTER = 4; // bytes

export function wasmBackend(module: WasmModule, name: string): Backend {
  const memory = new Heap(module);
  const open = async (graph: Graph) => new WasmSession(memory, await load(module, graph, name));
  return { name, writesInPlace: true, memory, open };
}

/** A tensor in the module's memory. */
class HeapTensor implements Tensor {
  constructor(
    private readonly module: WasmModule,
    readonly type: string,
    readonly dims: readonly number[],
    readonly address: number,
    readonly handle: number, // of ONNX Runtime's tensor
    readonly block: number, // memory that is this tensor's own; 0 where its handle or `whole` has it
    readonly whole: HeapTensor | null, // what this one is the front of
  ) {}

  get data(): TensorData {
    const { buffer } = bytesOf(this.module);
    return new ARRAY_TYPES[this.type as TypeName](buffer as ArrayBuffer, this.address, sizeOf(this.dims));
  }
}

class Heap implements TensorMemory {
  private view = new Uint32Array(0);

  constructor(readonly module: WasmModule) {}

  /** All of the memory as numbers of 32 bits: an address is four times its place. */
  get words(): Uint32Array {
    const { buffer } = bytesOf(this.module);
    if (this.view.buffer !== buffer) this.view = new Uint32Array(buffer as ArrayBuffer);
    return this.view;
  }

  allocate(type: string, dims: readonly number[]): HeapTensor {
    const bytes = sizeOf(dims) * ARRAY_TYPES[type as TypeName].BYTES_PER_ELEMENT;
    const block = this.module._malloc(Math.max(1, bytes));
    if (block === 0) throw new RangeError(`no room for ${bytes} bytes in the memory of WebAssembly`);
    return this.tensor(type, dims, block, block, null);
  }

  hold(tensor: Tensor): HeapTensor {
    if (tensor instanceof HeapTensor) return tensor;
    const held = this.allocate(tensor.type, tensor.dims);
    (held.data as Float32Array).set(tensor.data as Float32Array); // of one type
    return held;
  }

  front(tensor: Tensor, rows: number): HeapTensor {
    const whole = tensor as HeapTensor;
    return this.tensor(whole.type, [rows, ...whole.dims.slice(1)], whole.address, 0, whole);
  }

  free(tensor: Tensor): void {
    const { handle, block, whole } = tensor as HeapTensor;
    check(this.module, this.module._OrtReleaseTensor(handle));
    if (block !== 0) this.module._free(block);
    if (whole !== null) this.free(whole);
  }

  /** A tensor that ONNX Runtime made. */
  adopt(handle: number): HeapTensor {
    const { module } = this;
    const stack = module.stackSave();
    const found = module.stackAlloc(4 * POINTER);
    check(module, module._OrtGetTensorData(handle, found, found + POINTER, found + 2 * POINTER, found + 3 * POINTER));
    const { words } = this;
    const place = found / POINTER;
    const [type, address, dims, rank] = [words[place]!, words[place + 1]!, words[place + 2]!, words[place + 3]!];
    const sizes = Array.from(words.subarray(dims / POINTER, dims / POINTER + rank));
    module._OrtFree(dims);
    module.stackRestore(stack);
    const name = NAMES.get(type);
    if (name === undefined) throw new BundleError(`an output is of the type ${type} of ONNX, which is not read here`);
    return new HeapTensor(module, name, sizes, address, handle, 0, null);
  }

  private tensor(type: string, dims: readonly number[], address: number, block: number, whole: HeapTensor | null) {
    const { module } = this;
    const stack = module.stackSave();
    const sizes = module.stackAlloc(POINTER * dims.length);
    this.words.set(dims, sizes / POINTER);
    const bytes = sizeOf(dims) * ARRAY_TYPES[type as TypeName].BYTES_PER_ELEMENT;
    const handle = module._OrtCreateTensor(TYPES[type as TypeName], address, bytes, sizes, dims.length, ON_CPU);
    module.stackRestore(stack);
    check(module, handle === 0);
    return new HeapTensor(module, type, dims, address, handle, block, whole);
  }
}

class WasmSession implements Session {
  private readonly names = new Map<string, number>(); // addresses of names
  private readonly options: number;

  constructor(
    private readonly memory: Heap,
    private readonly session: number,
  ) {
    this.options = memory.module._OrtCreateRunOptions(ERRORS_ONLY, 0, false, 0);
  }

  async run(inputs: Readonly<Record<string, Tensor>>, outputs: Readonly<Record<string, Tensor | null>>) {
    const { memory, session } = this;
    const { module } = memory;
    const given = Object.entries(inputs).map(([name, tensor]) => [name, memory.hold(tensor)] as const);
    const wanted = Object.entries(outputs) as [string, HeapTensor | null][];
    const stack = module.stackSave();
    try {
      const inputNames = this.list(given.map(([name]) => this.name(name)));
      const values = this.list(given.map(([, { handle }]) => handle));
      const outputNames = this.list(wanted.map(([name]) => this.name(name)));
      const found = this.list(wanted.map(([, tensor]) => tensor?.handle ?? 0));
      const [count, asked] = [given.length, wanted.length];
      check(module, module._OrtRun(session, inputNames, values, count, outputNames, asked, found, this.options));
      const result: Record<string, Tensor> = {};
      const handles = memory.words.slice(found / POINTER, found / POINTER + asked);
      wanted.forEach(([name, tensor], i) => {
        result[name] = tensor ?? memory.adopt(handles[i]!);
      });
      return result;
    } finally {
      module.stackRestore(stack);
      for (const [name, tensor] of given) if (tensor !== inputs[name]) memory.free(tensor);
    }
  }

  async release(): Promise<void> {
    const { module } = this.memory;
    for (const address of this.names.values()) module._free(address);
    check(module, module._OrtReleaseSession(this.session));
  }

  private name(name: string): number {
    const known = this.names.get(name) ?? writeText(this.memory.module, name);
    this.names.set(name, known);
    return known;
  }

  /** An array of pointers on the stack. */
  private list(pointers: readonly number[]): number {
    const place = this.memory.module.stackAlloc(POINTER * pointers.length);
    this.memory.words.set(pointers, place / POINTER);
    return place;
  }
}

/** Throws BundleError. */
async function load(module: WasmModule, { file, model, weights, made_for }: Graph, engine: string): Promise<number> {
  const place = module._malloc(model.length);
  bytesOf(module).set(model, place);
  const [arena, patterns, profiling] = [true, true, false];
  const options = module._OrtCreateSessionOptions(
    ...([ALL_OPTIMIZATIONS, arena, patterns, SEQUENTIAL, profiling, 0, 0, ERRORS_ONLY, 0, 0] as const),
  );
  for (const { file: name, data } of weights) module.mountExternalData(name, data);
  try {
    const session = await module._OrtCreateSession(place, model.length, options);
    check(module, session === 0);
    return session;
  } catch (error) {
    const reason = (error instanceof Error ? error.message : String(error)).split("\n")[0];
    const needs = `made for ONNX Runtime ${made_for} and newer`;
    throw new BundleError(`${file}: ${engine} cannot load this graph (${needs}): ${reason}`);
  } finally {
    module.unmountExternalData();
    module._OrtReleaseSessionOptions(options);
    module._free(place);
  }
}
