/** ONNX Runtime in WebAssembly or on WebGPU (`onnxruntime-web`): browsers, workers, and Node. */

import type * as ort from "onnxruntime-common";
import { UnavailableError } from "./errors.js";
import { onnxruntimeBackend, type Ort } from "./onnxruntime.js";
import type { Backend } from "./session.js";

const MOST_THREADS = 4; // of one step there is not work for more

export interface WebOptions {
  /** The package, or its address, such as "/ort/ort.wasm.min.mjs"; without it, `onnxruntime-web/wasm` is imported. */
  readonly ort?: (Ort & { readonly env: ort.Env }) | string | undefined;
  /** Folder of the .wasm files, if they do not lie beside the package. */
  readonly wasm_paths?: string | undefined;
  /** More than one needs a page that is cross-origin isolated. If not given: as many as are of use. */
  readonly threads?: number | undefined;
  readonly provider?: "wasm" | "webgpu" | undefined;
}

export async function webBackend(options: WebOptions = {}): Promise<Backend> {
  const engine = typeof options.ort === "object" ? options.ort : await imported(options.ort);
  const threads = threadCount(options.threads);
  engine.env.logLevel = "error";
  engine.env.wasm.numThreads = threads;
  if (options.wasm_paths !== undefined) engine.env.wasm.wasmPaths = options.wasm_paths;
  const provider = options.provider ?? "wasm";
  const name = `onnxruntime-web, ${provider}, ${threads} ${threads === 1 ? "thread" : "threads"}`;
  const session = { executionProviders: [provider] };
  return onnxruntimeBackend(engine, { name, opensPaths: false, writesInPlace: false, session });
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

async function imported(address: string | undefined): Promise<Ort & { readonly env: ort.Env }> {
  try {
    return address === undefined ? await import("onnxruntime-web/wasm") : await import(address);
  } catch (error) {
    const advice = address === undefined ? "run: npm install onnxruntime-web" : `is the address ${address} right?`;
    throw new UnavailableError(`onnxruntime-web cannot be loaded; ${advice} (${String(error)})`);
  }
}
