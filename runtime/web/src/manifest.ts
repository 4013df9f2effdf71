/** `bundle.json`: what is in a bundle and how to run it. See SPEC.md and bundle.schema.json. */

import { BundleError, OptionError } from "./errors.js";
import { checkOptions, DEFAULT_OPTIONS, LENGTH_PENALTIES, withChanges, type TranslationOptions } from "./options.js";
import { contradictions } from "./manifest_rules.js";
import { anything, either, flag, list, number, object, oneOf, orNull, record, text, whole } from "./schema.js";
import { isObject, raiseAll, shown, type Check } from "./schema.js";
import type { AttentionOutput, Target } from "./step_model.js";
import { parseJson } from "./strict_json.js";
import { TOKENIZER_KINDS, type TokenizerKind } from "./tokenizer.js";
import { decodeUtf8, firstInvalid } from "./utf8.js";

export const MANIFEST_NAME = "bundle.json";
export const MAX_MANIFEST_BYTES = 16 * 2 ** 20;
const FORMAT = "tfexport-bundle";
const FORMAT_VERSION = 1;

export interface TokenizerInfo {
  readonly kind: TokenizerKind;
  readonly file: string;
}

export interface SpecialIds {
  readonly tokenizer: TokenizerInfo;
  readonly pad_id: number;
  readonly start_id: number;
  readonly eos_id: number;
  readonly unk_id: number;
}

export interface TensorInfo {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly (number | string)[]; // a number is fixed, a name is a size that varies
}

/** The ending of the graphs' files in each format. */
export const GRAPH_SUFFIXES = {
  onnx: ".onnx",
  ort: ".ort",
  single: ".onnx",
  torchscript: ".pt",
  "torch-export": ".pt2",
  aoti: ".pt2",
  executorch: ".pte",
} as const;

export type GraphFormat = keyof typeof GRAPH_SUFFIXES;

/**
 * How the decoder remembers earlier steps. `in_place`: buffers of fixed capacity and a used length a row. `growing`:
 * each step returns longer tensors. `fixed`: every shape is a number, and the graph returns the buffers with one position
 * written.
 */
export type CacheForm = "in_place" | "growing" | "fixed";

/** One graph, the file that holds it, and what goes in and out of it, in its order. */
export interface GraphInfo {
  readonly file: string;
  readonly inputs: readonly TensorInfo[];
  readonly outputs: readonly TensorInfo[];
}

export interface FileInfo {
  readonly sha256: string;
  readonly bytes: number;
}

/** The whole of `bundle.json`. */
export interface Manifest {
  readonly format_version: number;
  readonly producer: Readonly<Record<string, string>>;
  readonly model: {
    readonly name: string;
    readonly parameters: number;
    readonly d_model: number;
    readonly num_heads: number;
    readonly head_size: number;
    readonly num_encoder_layers: number;
    readonly num_decoder_layers: number;
    readonly d_ff: number;
    readonly source_vocab_size: number;
    readonly target_vocab_size: number;
    readonly max_source_length: number;
    readonly max_target_length: number;
  };
  readonly source: SpecialIds & {
    readonly add_bos: boolean;
    readonly add_eos: boolean;
    readonly prefix_ids?: readonly number[]; // behind the start token
    readonly suffix_ids?: readonly number[]; // behind the end token
  };
  readonly target: SpecialIds & {
    readonly never_generated: readonly number[];
    readonly prefix_ids?: readonly number[]; // behind the start token, in no result
  };
  readonly graphs: Readonly<Record<string, GraphInfo>>; // `encoder` and `decoder`, or `search` alone
  readonly graph_format?: GraphFormat; // of the graphs' files; decides which engine runs them; onnx if it is missing
  readonly weights: readonly string[]; // external data of the graphs; none: inside them
  readonly cache: { readonly form: CacheForm };
  readonly precision: string;
  readonly operators: "ort" | "portable";
  readonly requirements: { readonly onnxruntime: string; readonly domains: readonly string[] };
  readonly files: Readonly<Record<string, FileInfo>>; // every file but bundle.json itself
  readonly generation?: Partial<TranslationOptions>;
  readonly parity?: Readonly<Record<string, unknown>>;
}

// Letters, digits, dot, dash and underscore only: no separators, no drive, not hidden, the same file on every system.
const FILE_NAME = /[A-Za-z0-9_][A-Za-z0-9._-]{0,127}/;
const fileName = text(1, 128, FILE_NAME);
const count = whole(1, 2 ** 31 - 1);
const depth = whole(1, 1024);
const tokenId = whole(0, 2 ** 31 - 1);
const tokenIds = list(tokenId, 0, 2 ** 20);
const version = text(1, 64);
const graphName = text(1, 128, /[A-Za-z0-9_][A-Za-z0-9._-]{0,122}\.(onnx|ort|pt|pt2|pte)/);
const anyWhole = whole(-(2 ** 63), 2 ** 64);

const tensor = object({
  name: text(1, 256),
  type: oneOf("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"),
  shape: list(either(whole(0, 2 ** 31 - 1), text(1, 256)), 0, 16),
});
const graph = object({
  file: graphName,
  inputs: list(tensor, 1, 8192),
  outputs: list(tensor, 1, 8192),
});
const side: Record<string, Check> = {
  tokenizer: object({ kind: oneOf(...TOKENIZER_KINDS), file: fileName }),
  pad_id: tokenId,
  start_id: tokenId,
  eos_id: tokenId,
  unk_id: tokenId,
};

// Defaults of a bundle may not ask for unreasonable memory; a caller may still do so.
const GENERATION: Record<keyof TranslationOptions, Check> = {
  beam_size: whole(1, 1024),
  n_best: whole(1, 1024),
  length_penalty: oneOf(...LENGTH_PENALTIES),
  alpha: number,
  length_offset: anyWhole,
  word_reward: number,
  early_stopping: flag,
  min_length: anyWhole,
  max_length: orNull(anyWhole),
  max_length_ratio: orNull(number),
  max_length_extra: anyWhole,
  sampling: flag,
  temperature: number,
  top_k: anyWhole,
  top_p: number,
  seed: anyWhole,
  no_repeat_ngram_size: anyWhole,
  repetition_penalty: number,
  suppress_tokens: tokenIds,
  prefix_strength: number,
  truncate_source: flag,
  max_batch_tokens: whole(1, 2 ** 24),
};

const MANIFEST = object(
  {
    format: oneOf(FORMAT),
    format_version: anything,
    producer: record(version, 1, 64, /[A-Za-z0-9._-]{1,64}/),
    model: object({
      name: text(0, 256),
      parameters: whole(1, 2 ** 48),
      d_model: count,
      num_heads: count,
      head_size: count,
      num_encoder_layers: depth,
      num_decoder_layers: depth,
      d_ff: count,
      source_vocab_size: count,
      target_vocab_size: count,
      max_source_length: count,
      max_target_length: count,
    }),
    source: object({ ...side, add_bos: flag, add_eos: flag }, { prefix_ids: tokenIds, suffix_ids: tokenIds }),
    target: object({ ...side, never_generated: tokenIds }, { prefix_ids: tokenIds }),
    graphs: record(graph, 1, 2, /encoder|decoder|search/),
    weights: list(fileName, 0, 256),
    cache: object({ form: oneOf("in_place", "growing", "fixed") }),
    precision: text(1, 32, /[a-z0-9_-]+/),
    operators: oneOf("ort", "portable"),
    opset: whole(0, 1000),
    ir_version: whole(0, 1000),
    requirements: object({ onnxruntime: text(0, 256), domains: list(text(0, 256), 0, 64) }),
    files: record(
      object({ sha256: text(64, 64, /[0-9a-f]{64}/), bytes: whole(0, 2 ** 48) }),
      1,
      1024,
      FILE_NAME,
    ),
  },
  {
    generation: object({}, GENERATION),
    graph_format: oneOf(...Object.keys(GRAPH_SUFFIXES)),
    parity: record(anything, 0, 2 ** 20),
    digest: text(64, 64, /[0-9a-f]{64}/),
  },
);

/** `origin` names the file in errors. Throws BundleError, with every problem at once. */
export function readManifest(data: Uint8Array, origin: string): Manifest {
  if (data.length > MAX_MANIFEST_BYTES) throw new BundleError(`${origin}: larger than 16 MiB, not a manifest`);
  if (firstInvalid(data) >= 0) throw new BundleError(`${origin}: not UTF-8`);
  const values = parseJson(decodeUtf8(data), origin);
  checkFormat(values, origin);
  const problems: string[] = [];
  MANIFEST(values, "", problems);
  raiseAll(problems, origin);
  const manifest = values as Manifest;
  raiseAll(contradictions(manifest), origin);
  try {
    checkOptions(defaultOptions(manifest), searchTarget(manifest));
  } catch (error) {
    if (error instanceof OptionError) throw new BundleError(`${origin}: generation: ${error.message}`);
    throw error;
  }
  return manifest;
}

/** The runtime's defaults with those of this bundle laid over. */
export function defaultOptions(manifest: Manifest): TranslationOptions {
  return withChanges(DEFAULT_OPTIONS, manifest.generation ?? {});
}

/** What the search must know of this model. */
export function searchTarget({ target, model }: Manifest): Target {
  return {
    vocab_size: model.target_vocab_size,
    start_id: target.start_id,
    eos_id: target.eos_id,
    never_generated: target.never_generated,
    max_length: model.max_target_length,
    prefix_ids: target.prefix_ids ?? [],
  };
}

/** Outputs of the decoder that say what a step looks at. */
export function attentionOutputs({ graphs }: Manifest): AttentionOutput[] {
  const given = graphs["decoder"]!.outputs.filter(({ name }) => /^cross_attention(\.\d+)?$/.test(name));
  return given.map(({ name, shape }) => ({ name, heads: Number(shape[1]) })); // [rows, heads, source]
}

/** Heads and head size of the self-attention cache: the graph may pad the head size of the model. */
export function cacheHead({ graphs }: Manifest, origin: string): [number, number] {
  const shape = graphs["decoder"]!.inputs.find(({ name }) => name === "past_key_values.0.decoder.key")?.shape ?? [];
  const [, heads, , size] = shape;
  if (shape.length === 4 && typeof heads === "number" && typeof size === "number") return [heads, size];
  throw new BundleError(
    `${origin}: decoder graph: no input past_key_values.0.decoder.key of shape [rows, heads, length, size]`,
  );
}

export function graphFormat({ graph_format }: Manifest): GraphFormat {
  return graph_format ?? "onnx";
}

export function isFileName(name: string): boolean {
  return new RegExp(`^${FILE_NAME.source}$`).test(name);
}

function checkFormat(values: unknown, origin: string): void {
  if (!isObject(values) || values["format"] !== FORMAT) {
    throw new BundleError(`${origin}: not the manifest of a tfexport bundle; make one with \`tfexport export\``);
  }
  const found = values["format_version"];
  if (!Number.isInteger(found) || (found as number) < 1) {
    throw new BundleError(`${origin}: format_version must be a whole number from 1, not ${shown(found)}`);
  }
  if ((found as number) > FORMAT_VERSION) {
    throw new BundleError(
      `${origin}: bundle format ${String(found)} is newer than this runtime reads (${FORMAT_VERSION}); ` +
        "upgrade it: npm install @tfexport/runtime@latest",
    );
  }
}
