/** ONNX Runtime in WebAssembly or on WebGPU (`onnxruntime-web`): browsers, workers, and Node. */

import type * as ort from "onnxruntime-common";
import { UnavailableError } from "./errors.js";
import { onnxruntimeBackend, type Ort } from "./onnxruntime.js";
import type { Backend } from "./session.js";
import { wasmBackend } from "./wasm_engine.js";
import { fits, startWasm, type WasmFactory } from "./wasm_module.js";

const MOST_THREADS = 4; // of one step there is not work for more

export interface WebOptions {
  /**
   * The engine or its address: "/ort/ort-wasm-simd-threaded.mjs", which runs without copies, or a whole package such as
   * "/ort/ort.webgpu.min.mjs". Without it the first is imported from `onnxruntime-web`, or for WebGPU the second.
   */
  readonly ort?: WebEngine | string | undefined;
  /** Folder of the .wasm files, if they do not lie beside the engine. */
  readonly wasm_paths?: string | undefined;
  /** More than one needs a page that is cross-origin isolated. If not given: as many as are of use. */
  readonly threads?: number | undefined;
  readonly provider?: "wasm" | "webgpu" | undefined;
}

type Package = Ort & { readonly env: ort.Env };

/** The compiled engine alone, or a package around it. */
export type WebEngine = Package | { readonly default: WasmFactory };

export async function webBackend(options: WebOptions = {}): Promise<Backend> {
  const provider = options.provider ?? "wasm";
  const threads = threadCount(options.threads);
  const name = `onnxruntime-web, ${provider}, ${threads} ${threads === 1 ? "thread" : "threads"}`;
  const engine = typeof options.ort === "object" ? options.ort : await imported(options.ort, provider);
  const settings = { ...options, threads, provider };
  if (isPackage(engine)) return packageBackend(engine, settings, name);
  const module = await startWasm(engine.default, threads, options.wasm_paths);
  if (fits(module)) return wasmBackend(module, name);
  // Another interface than that of the versions that were tried: the package's own is a little slower.
  if (options.ort === undefined) return packageBackend(await import("onnxruntime-web/wasm"), settings, name);
  throw new UnavailableError(
    "this version of onnxruntime-web has another WebAssembly interface; give its package itself as `ort`, " +
      "such as ort.wasm.min.mjs: a little slower, and the same results",
  );
}

interface Settings {
  readonly threads: number;
  readonly provider: string;
  readonly wasm_paths?: string | undefined;
}

/** By the package's own interface, which copies inputs and outputs. */
function packageBackend(engine: Package, { threads, provider, wasm_paths }: Settings, name: string): Backend {
  engine.env.logLevel = "error";
  engine.env.wasm.numThreads = threads;
  if (wasm_paths !== undefined) engine.env.wasm.wasmPaths = wasm_paths;
  const session = { executionProviders: [provider] };
  return onnxruntimeBackend(engine, { name, opensPaths: false, writesInPlace: false, session });
}

function isPackage(engine: WebEngine): engine is Package {
  return "InferenceSession" in engine;
}

let told = false; // whether the console has heard why there is only one thread

/** Threads share memory, which browsers allow on isolated pages only. */
function threadCount(wanted: number | undefined): number {
  const isolated = (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated ?? true; // Node has no such thing
  if (isolated) return wanted ?? Math.min(MOST_THREADS, globalThis.navigator?.hardwareConcurrency ?? 1);
  if (!told && wanted !== 1) {
    told = true;
    console.info(
      "tfexport: one thread, because this page is not cross-origin isolated; its server must send the headers " +
        "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
    );
  }
  return 1;
}

async function imported(address: string | undefined, provider: string): Promise<WebEngine> {
  try {
    if (address !== undefined) return await import(address);
    if (provider === "webgpu") return await import("onnxruntime-web/webgpu");
    return await import("onnxruntime-web/ort-wasm-simd-threaded.mjs" as string);
  } catch (error) {
    const advice = address === undefined ? "run: npm install onnxruntime-web" : `is the address ${address} right?`;
    throw new UnavailableError(`onnxruntime-web cannot be loaded; ${advice} (${String(error)})`);
  }
}
