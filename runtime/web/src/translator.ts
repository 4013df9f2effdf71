/** `(await Translator.load(source, backend)).translate(texts)`: a bundle, ready to run. */

import { openBundle, type Bundle, type BundleOptions } from "./bundle.js";
import { OptionError } from "./errors.js";
import { defaultOptions, searchTarget, type Manifest } from "./manifest.js";
import { withChanges, type Hooks, type TranslationOptions } from "./options.js";
import { openModel, type Backend, type BundleModel } from "./session.js";
import { bundleFiles, type BundleSource } from "./sources.js";
import { sourceIds, translate, type Prefix, type Translation, type Vocabularies } from "./translation.js";

/** Options that differ from the bundle's, what is called meanwhile, and beginnings of the targets, one for each text. */
export type TranslateOptions = Partial<TranslationOptions> &
  Hooks & {
    readonly prefixes?: readonly Prefix[] | undefined;
    /** Hypotheses also tell what their tokens looked at; of a bundle that was exported with it. */
    readonly attention?: boolean | undefined;
  };

export class Translator {
  readonly manifest: Manifest;
  readonly default_options: TranslationOptions;
  private readonly vocabularies: Vocabularies;
  private last: Promise<unknown> = Promise.resolve(); // engines run one thing at a time

  private constructor(
    bundle: Bundle,
    private readonly model: BundleModel,
    /** The engine, for people. */
    readonly backend: string,
  ) {
    this.manifest = bundle.manifest;
    this.default_options = defaultOptions(bundle.manifest);
    this.vocabularies = bundleVocabularies(bundle);
  }

  /** Throws BundleError, UnavailableError. */
  static async load(source: BundleSource, backend: Backend, options: BundleOptions = {}): Promise<Translator> {
    const bundle = await openBundle(await bundleFiles(source), options);
    bundleVocabularies(bundle); // a damaged tokenizer is told before the graphs are loaded
    return new Translator(bundle, await openModel(bundle, backend), backend.name);
  }

  /**
   * Translates the texts, in their order. Calls that overlap wait for one another.
   *
   * Throws OptionError before any work, InputError for a text that cannot be translated, and the reason of the signal.
   */
  translate(texts: readonly string[], options: TranslateOptions = {}): Promise<Translation[]> {
    const { prefixes, attention, callback, signal, warn, ...changes } = options;
    return this.inTurn(async () => {
      if (attention && this.model.attentionOutputs.length === 0) {
        throw new OptionError("this bundle does not give attention; export it with --with attention");
      }
      this.model.watchesAttention = attention ?? false;
      const merged = withChanges(this.default_options, changes);
      const target = searchTarget(this.manifest);
      return translate(this.model, this.vocabularies, target, texts, merged, prefixes, { callback, signal, warn });
    });
  }

  /**
   * The encoder's last hidden states: for each text a vector of d_model for each id that the encoder reads.
   *
   * Throws OptionError where the bundle was exported without, and InputError for a text that is too long.
   */
  encoderStates(texts: readonly string[]): Promise<Float32Array[][]> {
    return this.inTurn(async () => {
      const sources = texts.map((text, i) => sourceIds(text, i, this.vocabularies, this.default_options, {}));
      const states: Float32Array[][] = [];
      for (const source of sources) states.push(source.length === 0 ? [] : await this.model.encoderStates(source));
      return states;
    });
  }

  private inTurn<T>(run: () => Promise<T>): Promise<T> {
    const result = this.last.then(run);
    this.last = result.catch(() => undefined);
    return result;
  }

  /** Frees the engine's memory, after what is still running. The translator cannot be used afterwards. */
  async release(): Promise<void> {
    await this.last;
    await this.model.release();
  }
}

function bundleVocabularies(bundle: Bundle): Vocabularies {
  const { source, model } = bundle.manifest;
  return {
    source: bundle.sourceTokenizer(),
    target: bundle.targetTokenizer(),
    before: [...(source.add_bos ? [source.start_id] : []), ...(source.prefix_ids ?? [])],
    after: [...(source.add_eos ? [source.eos_id] : []), ...(source.suffix_ids ?? [])],
    max_source_length: model.max_source_length,
  };
}
