/** `(await Translator.load(source, backend)).translate(texts)`: a bundle, ready to run. */

import { openBundle, type Bundle, type BundleOptions } from "./bundle.js";
import { defaultOptions, searchTarget, type Manifest } from "./manifest.js";
import { withChanges, type Hooks, type TranslationOptions } from "./options.js";
import { openModel, type Backend, type BundleModel } from "./session.js";
import { bundleFiles, type BundleSource } from "./sources.js";
import { translate, type Prefix, type Translation, type Vocabularies } from "./translation.js";

/** Options that differ from the bundle's, what is called meanwhile, and beginnings of the targets, one for each text. */
export type TranslateOptions = Partial<TranslationOptions> &
  Hooks & {
    readonly prefixes?: readonly Prefix[] | undefined;
    /** Gives the attention of each hypothesis, if the bundle has it. */
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
    const run = async () => {
      this.model.watchesAttention = attention ?? false;
      const merged = withChanges(this.default_options, changes);
      const target = searchTarget(this.manifest);
      return translate(this.model, this.vocabularies, target, texts, merged, prefixes, { callback, signal, warn });
    };
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
