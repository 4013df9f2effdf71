/**
 * The compiled ONNX Runtime of `onnxruntime-web`: what its WebAssembly module exports, and how it is started.
 *
 * The package's own JavaScript copies all inputs and outputs of every run, caches included. Its module does not ask for
 * that, so wasm_engine.ts calls it directly. What is called is not a promised interface: `fits` looks whether it is there.
 */

import { UnavailableError } from "./errors.js";

/** Addresses and handles are numbers; a status of 0 is success. */
export interface WasmModule {
  readonly HEAPU8: Uint8Array; // old once the memory has grown, until getValue is called
  getValue(address: number, type: "i8" | "i32"): number;
  setValue(address: number, value: number, type: "i32"): void;
  UTF8ToString(address: number): string;
  stringToUTF8(text: string, address: number, bytes: number): void;
  lengthBytesUTF8(text: string): number;
  stackSave(): number;
  stackRestore(stack: number): void;
  stackAlloc(bytes: number): number;
  mountExternalData(name: string, data: Uint8Array): void;
  unmountExternalData(): void;
  _malloc(bytes: number): number;
  _free(address: number): void;
  _OrtInit(threads: number, logLevel: number): number;
  _OrtGetLastError(code: number, message: number): number;
  _OrtCreateSessionOptions(
    optimization: number,
    arena: boolean,
    patterns: boolean,
    mode: number,
    profiling: boolean,
    unused: number,
    logId: number,
    logSeverity: number,
    logVerbosity: number,
    optimizedPath: number,
  ): number;
  _OrtReleaseSessionOptions(options: number): number;
  _OrtCreateSession(model: number, bytes: number, options: number): number | Promise<number>;
  _OrtReleaseSession(session: number): number;
  _OrtCreateRunOptions(logSeverity: number, logVerbosity: number, terminate: boolean, tag: number): number;
  _OrtCreateTensor(type: number, data: number, bytes: number, dims: number, rank: number, location: number): number;
  _OrtGetTensorData(tensor: number, type: number, data: number, dims: number, rank: number): number;
  _OrtReleaseTensor(tensor: number): number;
  _OrtFree(address: number): number;
  _OrtRun(
    session: number,
    inputNames: number,
    inputs: number,
    inputCount: number,
    outputNames: number,
    outputCount: number,
    outputs: number,
    options: number,
  ): number;
}

export type WasmFactory = (settings: {
  numThreads: number;
  locateFile?: (file: string) => string;
}) => Promise<WasmModule>;

// How many arguments each takes in the versions that this file was written for.
const ARGUMENTS = {
  _OrtInit: 2,
  _OrtGetLastError: 2,
  _OrtCreateSessionOptions: 10,
  _OrtReleaseSessionOptions: 1,
  _OrtCreateSession: 3,
  _OrtReleaseSession: 1,
  _OrtCreateRunOptions: 4,
  _OrtCreateTensor: 6,
  _OrtGetTensorData: 5,
  _OrtReleaseTensor: 1,
  _OrtFree: 1,
  _OrtRun: 8,
} as const satisfies Partial<Record<keyof WasmModule, number>>;

const ERRORS_ONLY = 3; // of ONNX Runtime's log
const started = new Map<WasmFactory, Promise<WasmModule>>(); // one module serves all translators, as its threads do

/** The module, started at the first call; the number of threads is that of the first call. Throws UnavailableError. */
export function startWasm(factory: WasmFactory, threads: number, folder: string | undefined): Promise<WasmModule> {
  const running = started.get(factory) ?? start(factory, threads, folder);
  started.set(factory, running);
  running.catch(() => started.delete(factory));
  return running;
}

/** False for a version of the package with another interface. */
export function fits(module: WasmModule): boolean {
  return Object.entries(ARGUMENTS).every(([name, count]) => {
    const exported: unknown = module[name as keyof WasmModule];
    return typeof exported === "function" && exported.length === count;
  });
}

async function start(factory: WasmFactory, threads: number, folder: string | undefined): Promise<WasmModule> {
  const place = folder === undefined ? {} : { locateFile: (file: string) => folder.replace(/\/?$/, "/") + file };
  let module: WasmModule;
  try {
    module = await factory({ numThreads: threads, ...place });
  } catch (error) {
    throw new UnavailableError(`ONNX Runtime's WebAssembly does not start here: ${firstLine(error)}`);
  }
  if (fits(module)) check(module, module._OrtInit(threads, ERRORS_ONLY));
  return module;
}

/** Throws what ONNX Runtime says about a failure. */
export function check(module: WasmModule, failed: number | boolean): void {
  if (!failed) return;
  const stack = module.stackSave();
  const place = module.stackAlloc(8);
  module._OrtGetLastError(place, place + 4);
  const message = module.getValue(place + 4, "i32");
  module.stackRestore(stack);
  throw new Error(message === 0 ? "ONNX Runtime gives no reason" : module.UTF8ToString(message));
}

/** A text in the module's memory, to be freed. */
export function writeText(module: WasmModule, text: string): number {
  const bytes = module.lengthBytesUTF8(text) + 1;
  const address = module._malloc(bytes);
  module.stringToUTF8(text, address, bytes);
  return address;
}

/** All of the module's memory as it is now. */
export function bytesOf(module: WasmModule): Uint8Array {
  module.getValue(0, "i8"); // renews the view if the memory has grown
  return module.HEAPU8;
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split("\n")[0]!;
}
