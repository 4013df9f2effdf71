/** Node: bundles on disk, and ONNX Runtime as native code (`onnxruntime-node`) or WebAssembly (`onnxruntime-web`). */

import { lstat, open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { BundleFiles, BundleOptions } from "./bundle.js";
import { BundleError, UnavailableError } from "./errors.js";
import { MAX_MANIFEST_BYTES } from "./manifest.js";
import { onnxruntimeBackend, type Ort } from "./onnxruntime.js";
import type { Backend } from "./session.js";
import { filesOfZip } from "./sources.js";
import { Translator } from "./translator.js";
import { webBackend } from "./web.js";

export * from "./index.js";

const MAX_ZIP_BYTES = 2 ** 32 - 1;

export interface NodeOptions extends BundleOptions {
  readonly engine?: "native" | "wasm"; // native if not given
  readonly threads?: number; // of the engine; if not given, native takes one for each core and wasm one
}

/** A translator for a folder or zip on disk, or a bundle at an http(s) address. */
export async function loadTranslator(place: string, options: NodeOptions = {}): Promise<Translator> {
  const source = /^https?:\/\//.test(place) ? place : await filesOnDisk(place);
  const wasm = options.engine === "wasm";
  const backend = wasm ? await webBackend({ threads: options.threads ?? 1 }) : await nodeBackend(options);
  return Translator.load(source, backend, options);
}

export async function nodeBackend(options: { readonly threads?: number } = {}): Promise<Backend> {
  let ort: Ort;
  try {
    ort = await import("onnxruntime-node");
  } catch (error) {
    throw new UnavailableError(`onnxruntime-node cannot be loaded; run: npm install onnxruntime-node (${String(error)})`);
  }
  const session = { intraOpNumThreads: options.threads ?? 0, interOpNumThreads: 1 };
  return onnxruntimeBackend(ort, { name: "onnxruntime-node", opensPaths: true, writesInPlace: true, session });
}

/** A folder, or a zip. Throws BundleError for what cannot be read, and for links. */
export async function filesOnDisk(place: string): Promise<BundleFiles> {
  return onDisk(place, async () => {
    const found = await stat(place);
    if (found.isDirectory()) return folder(place);
    if (found.size > MAX_ZIP_BYTES) throw new BundleError(`${place}: has ${found.size} bytes, too large for a zip here`);
    return filesOfZip(await readAtMost(place, MAX_ZIP_BYTES), place);
  });
}

async function folder(place: string): Promise<BundleFiles> {
  const entries = await readdir(place, { withFileTypes: true });
  for (const entry of entries) {
    if (entry.isSymbolicLink()) {
      throw new BundleError(`${join(place, entry.name)}: is a link; a bundle holds plain files only`);
    }
    if (!entry.isFile()) {
      throw new BundleError(`${join(place, entry.name)}: is not a plain file; a bundle holds nothing else`);
    }
  }
  const path = (name: string) => join(place, name);
  return {
    origin: place.replace(/\/+$/, ""),
    names: entries.map((entry) => entry.name),
    path,
    read: (name, info) =>
      onDisk(path(name), async () => {
        const { size } = await lstat(path(name));
        const limit = info?.bytes ?? MAX_MANIFEST_BYTES;
        return readAtMost(path(name), Math.min(size, limit + 1));
      }),
  };
}

async function readAtMost(path: string, limit: number): Promise<Uint8Array> {
  const file = await open(path, "r");
  try {
    const bytes = new Uint8Array(Math.min((await file.stat()).size, limit));
    const { bytesRead } = await file.read(bytes, 0, bytes.length, 0);
    return bytes.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

async function onDisk<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT") throw new BundleError(`${path}: no such file or folder`);
    if (code !== undefined && /^E[A-Z]+$/.test(code)) throw new BundleError(`${path}: cannot be read (${code})`);
    throw error;
  }
}
