/** What every platform has. Node adds `@tfexport/runtime/node`, browsers `/web`, React Native `/react-native`. */

export { openBundle, type Bundle, type BundleFiles, type BundleOptions, type LoadProgress } from "./bundle.js";
export * from "./errors.js";
export type { FinishReason } from "./hypothesis.js";
export type { Manifest } from "./manifest.js";
export { onnxruntimeBackend, type Ort, type OrtSettings } from "./onnxruntime.js";
export { DEFAULT_OPTIONS, type Hooks, type LengthPenaltyName, type Progress, type TranslationOptions } from "./options.js";
export { RemoteTranslator, type RemoteOptions } from "./remote.js";
export type { Backend, Graph, Session } from "./session.js";
export { bundleFiles, type BundleSource } from "./sources.js";
export type { IdList } from "./step_model.js";
export type { Tensor, TensorMemory } from "./tensors.js";
export { loadTokenizer, type Tokenizer } from "./tokenizer.js";
export type { Hypothesis, HypothesisAttention, Prefix, Translation } from "./translation.js";
export { Translator, type TranslateOptions } from "./translator.js";
export { webBackend, type WebOptions } from "./web.js";
