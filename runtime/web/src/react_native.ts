/**
 * React Native: `onnxruntime-react-native` as the engine, and bundles in a folder of the app.
 *
 * Both come from the app: the engine because it is native code that the app links, the file system because apps choose
 * between several packages for it.
 */

import type * as ort from "onnxruntime-common";
import type { BundleFiles, BundleOptions } from "./bundle.js";
import { BundleError } from "./errors.js";
import { onnxruntimeBackend, type Ort } from "./onnxruntime.js";
import type { Backend } from "./session.js";
import { Translator } from "./translator.js";

export * from "./errors.js";
export type { TranslateOptions } from "./translator.js";
export type { Hypothesis, Translation } from "./translation.js";
export { Translator };

/** What is needed of a file system; expo-file-system and react-native-fs have it under other names. */
export interface DeviceFiles {
  /** Names of the files in a folder. */
  list(folder: string): Promise<readonly string[]>;
  /** Size of a file in bytes. */
  size(path: string): Promise<number>;
  /** The whole file as base64, which is what such packages give. */
  readBase64(path: string): Promise<string>;
}

export interface DeviceOptions extends BundleOptions {
  /** Such as ["nnapi"], ["coreml"] or ["xnnpack"]; the processor if not given. */
  readonly executionProviders?: ort.InferenceSession.SessionOptions["executionProviders"];
}

const MAX_READ = 512 * 2 ** 20; // a file that is larger does not fit into a string

/** A translator for the bundle in a folder of the app, with or without `file://` in front. */
export function loadTranslator(
  folder: string,
  ort: Ort,
  files: DeviceFiles,
  options: DeviceOptions = {},
): Promise<Translator> {
  return filesOnDevice(folder, files).then((found) => Translator.load(found, reactNativeBackend(ort, options), options));
}

export function reactNativeBackend(ort: Ort, options: DeviceOptions = {}): Backend {
  const session = { executionProviders: options.executionProviders ?? ["cpu"] };
  return onnxruntimeBackend(ort, { name: "onnxruntime-react-native", opensPaths: true, writesInPlace: false, session });
}

async function filesOnDevice(folder: string, files: DeviceFiles): Promise<BundleFiles> {
  const base = folder.replace(/\/+$/, "");
  return {
    origin: base,
    names: await files.list(base),
    path: (name) => `${base.replace(/^file:\/\//, "")}/${name}`,
    read: async (name, info) => {
      const path = `${base}/${name}`;
      const size = await files.size(path);
      if (size > MAX_READ || (info !== null && size !== info.bytes)) {
        throw new BundleError(`${path}: has ${size} bytes, expected ${info?.bytes ?? "fewer"}; copy the bundle again`);
      }
      return bytesOf(await files.readBase64(path));
    },
  };
}

/** Base64 by hand: not every engine has atob. */
function bytesOf(base64: string): Uint8Array {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const values = new Int16Array(128).fill(-1);
  for (let i = 0; i < letters.length; i++) values[letters.charCodeAt(i)] = i;
  const bytes = new Uint8Array(Math.floor((base64.replace(/[\s=]/g, "").length * 3) / 4));
  let [bits, held, place] = [0, 0, 0];
  for (let i = 0; i < base64.length; i++) {
    const value = values[base64.charCodeAt(i)] ?? -1;
    if (value < 0) continue; // a line break, or the padding at the end
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[place++] = (held >> bits) & 0xff;
  }
  return bytes;
}
