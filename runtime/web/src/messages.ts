/** What a page and its worker tell each other. Everything here can be cloned. */

import type { LoadProgress } from "./bundle.js";
import { BundleError, InputError, ModelOutputError, OptionError, TfexportError, UnavailableError } from "./errors.js";
import type { TruncationWarning } from "./errors.js";
import type { Manifest } from "./manifest.js";
import type { Progress, TranslationOptions } from "./options.js";
import type { BundleSource } from "./sources.js";
import type { Prefix, Translation } from "./translation.js";

export interface LoadRequest {
  readonly kind: "load";
  readonly source: Exclude<BundleSource, URL | { read: unknown }>;
  readonly verify: boolean | undefined;
  readonly ort: string | undefined;
  readonly wasm_paths: string | undefined;
  readonly threads: number | undefined;
  readonly provider: "wasm" | "webgpu" | undefined;
}

export interface TranslateRequest {
  readonly kind: "translate";
  readonly texts: readonly string[];
  readonly changes: Partial<TranslationOptions>;
  readonly prefixes: readonly Prefix[] | undefined;
  readonly attention: boolean | undefined;
  readonly watched: boolean; // whether progress is wanted
}

export type Call =
  | LoadRequest
  | TranslateRequest
  | { readonly kind: "encoder_states"; readonly texts: readonly string[] }
  | { readonly kind: "abort"; readonly call: number }
  | { readonly kind: "cancel"; readonly call: number; readonly sentence: number; readonly sample: number }
  | { readonly kind: "release" };

/** To the worker; answers carry the same number. */
export interface CallMessage {
  readonly id: number;
  readonly call: Call;
}

export interface Loaded {
  readonly manifest: Manifest;
  readonly default_options: TranslationOptions;
  readonly backend: string;
}

/** What a call gives. */
export type Value = Loaded | Translation[] | Float32Array[][] | null;

export type Answer =
  | { readonly kind: "loading"; readonly progress: LoadProgress }
  | { readonly kind: "progress"; readonly progress: Progress }
  | { readonly kind: "warning"; readonly warning: TruncationWarning }
  | { readonly kind: "done"; readonly value: Value }
  | { readonly kind: "failed"; readonly error: PlainError };

/** From the worker. */
export interface AnswerMessage {
  readonly id: number;
  readonly answer: Answer;
}

/** An error as data: its class does not survive a message. */
export interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly problem: string | undefined;
  readonly index: number | undefined;
}

export function plainError(error: unknown): PlainError {
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  const { problem, index } = error instanceof InputError ? error : { problem: undefined, index: undefined };
  return { name, message, problem, index };
}

const CLASSES = { BundleError, ModelOutputError, OptionError, TfexportError, UnavailableError };

export function revivedError({ name, message, problem, index }: PlainError): Error {
  if (problem !== undefined) return new InputError(problem, index);
  const Class = Object.hasOwn(CLASSES, name) ? CLASSES[name as keyof typeof CLASSES] : undefined;
  if (Class !== undefined) return new Class(message);
  const error = new Error(message);
  error.name = name;
  return error;
}
