/** A bundle, trusted only after every check. See SPEC.md, "Bundle". Where its files come from is in sources.ts. */

import { BundleError } from "./errors.js";
import { externalLocations } from "./external_data.js";
import { graphFormat, MANIFEST_NAME, readManifest, type FileInfo, type Manifest, type TokenizerInfo } from "./manifest.js";
import { checkSeal } from "./seal.js";
import { sha256 } from "./sha256.js";
import { BoundedTokenizer, loadTokenizer, type Tokenizer } from "./tokenizer.js";

const MAX_GRAPH_BYTES = 256 * 2 ** 20; // of an .onnx file: weights lie beside it
const SHOWN_NAMES = 6; // of a long list of files, in an error message

/** Where the files of a bundle are. */
export interface BundleFiles {
  readonly origin: string; // named in errors
  readonly names: readonly string[] | null; // of all files; null where they cannot be listed
  /** The whole file; `info` is what the manifest says of it, null for the manifest itself. */
  read(name: string, info: FileInfo | null, received: (bytes: number) => void): Promise<Uint8Array>;
  /** A path on disk from which an engine can map the file, where there is one. */
  path?(name: string): string;
}

export interface LoadProgress {
  readonly file: string;
  readonly loaded: number; // bytes of all files so far
  readonly total: number; // bytes of all files that are needed
}

export interface BundleOptions {
  /** False skips the SHA-256 of the files, nothing else. */
  readonly verify?: boolean | undefined;
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
}

/** The files of a bundle that are needed to run it, checked. */
export class Bundle {
  private readonly tokenizers = new Map<string, Tokenizer>();

  constructor(
    readonly manifest: Manifest,
    readonly files: BundleFiles,
    private readonly data: Map<string, Uint8Array>,
  ) {}

  get origin(): string {
    return this.files.origin;
  }

  /** Content of a file that a runtime needs. Throws BundleError for any other. */
  bytes(name: string): Uint8Array {
    const data = this.data.get(name);
    if (data === undefined) throw new BundleError(`${this.origin}: holds no file ${name} for a runtime`);
    return data;
  }

  /** Lets go of graphs and weights, which an engine has copied. */
  forgetGraphs(): void {
    for (const name of graphFiles(this.manifest)) this.data.delete(name);
  }

  sourceTokenizer(): Tokenizer {
    const { source, model } = this.manifest;
    return this.tokenizer(source.tokenizer, source.unk_id, model.source_vocab_size);
  }

  targetTokenizer(): Tokenizer {
    const { target, model } = this.manifest;
    const tokenizer = this.tokenizer(target.tokenizer, target.unk_id, model.target_vocab_size);
    for (let id = tokenizer.size; id < model.target_vocab_size; id++) {
      if (target.never_generated.includes(id)) continue;
      throw new BundleError(
        `${this.origin}/${target.tokenizer.file}: holds ${tokenizer.size} tokens, the target vocabulary of the model ` +
          `${model.target_vocab_size}, and the manifest lets it generate ids without a token; export the model again`,
      );
    }
    return tokenizer;
  }

  private tokenizer({ kind, file }: TokenizerInfo, unkId: number, vocabSize: number): Tokenizer {
    const key = `${kind} ${file} ${unkId}`;
    const load = () => loadTokenizer(kind, this.bytes(file), unkId);
    const tokenizer = this.tokenizers.get(key) ?? named(`${this.origin}/${file}`, load);
    this.tokenizers.set(key, tokenizer);
    return tokenizer.size > vocabSize ? new BoundedTokenizer(tokenizer, vocabSize, unkId) : tokenizer;
  }
}

/** Reads and checks what is needed to run a bundle. Throws BundleError, and UnavailableError where nothing comes. */
export async function openBundle(files: BundleFiles, options: BundleOptions = {}): Promise<Bundle> {
  if (files.names !== null && !files.names.includes(MANIFEST_NAME)) {
    const found = files.names.length > 0 ? listed([...files.names].sort()) : "nothing";
    throw new BundleError(`${files.origin}: not a bundle: no ${MANIFEST_NAME} in it (found ${found})`);
  }
  const place = `${files.origin}/${MANIFEST_NAME}`;
  const text = await files.read(MANIFEST_NAME, null, () => undefined);
  const manifest = readManifest(text, place);
  if (options.verify ?? true) await checkSeal(text, place);
  checkListing(manifest, files);
  checkFormat(manifest, files.origin);
  const data = await readNeeded(manifest, files, options);
  checkGraphs(manifest, data, files.origin);
  return new Bundle(manifest, files, data);
}

async function readNeeded(manifest: Manifest, files: BundleFiles, options: BundleOptions) {
  const { source, target } = manifest;
  const names = [...new Set([source.tokenizer.file, target.tokenizer.file, ...graphFiles(manifest)])];
  const total = names.reduce((sum, name) => sum + manifest.files[name]!.bytes, 0);
  const data = new Map<string, Uint8Array>();
  let before = 0;
  for (const name of names) {
    const info = manifest.files[name]!;
    const report = (bytes: number) => options.onProgress?.({ file: name, loaded: before + bytes, total });
    const bytes = await files.read(name, info, report);
    await checkFile(`${files.origin}/${name}`, bytes, info, options.verify ?? true);
    data.set(name, bytes);
    before += info.bytes;
    report(0);
  }
  return data;
}

async function checkFile(place: string, bytes: Uint8Array, info: FileInfo, verify: boolean): Promise<void> {
  if (bytes.length !== info.bytes) {
    throw new BundleError(`${place}: has ${bytes.length} bytes, the manifest says ${info.bytes}; copy the bundle again`);
  }
  if (verify && (await sha256(bytes)) !== info.sha256) {
    throw new BundleError(`${place}: its content has changed (SHA-256 differs); copy the bundle again`);
  }
}

/** Exactly the listed files. */
function checkListing(manifest: Manifest, { names, origin }: BundleFiles): void {
  if (names === null) return;
  const expected = new Set(Object.keys(manifest.files));
  const found = new Set(names.filter((name) => name !== MANIFEST_NAME));
  const missing = [...expected].filter((name) => !found.has(name)).sort();
  const foreign = [...found].filter((name) => !expected.has(name)).sort();
  if (missing.length > 0) throw new BundleError(`${origin}: ${listed(missing)} missing; copy the whole bundle again`);
  if (foreign.length > 0) throw new BundleError(`${origin}: ${listed(foreign)} not part of the bundle; move it elsewhere`);
}

/** Before anything large is fetched. */
function checkFormat(manifest: Manifest, origin: string): void {
  const format = graphFormat(manifest);
  if (format === "onnx" || format === "ort") return;
  throw new BundleError(`${origin}: of format ${format}, which another engine runs: see the README.md in it`);
}

/** No ONNX graph reads a file other than the weights, wherever in it the tensor is. */
function checkGraphs(manifest: Manifest, data: Map<string, Uint8Array>, origin: string): void {
  for (const { file } of Object.values(manifest.graphs)) {
    if (!file.endsWith(".onnx")) continue;
    const graph = data.get(file)!;
    if (graph.length > MAX_GRAPH_BYTES) {
      throw new BundleError(`${origin}/${file}: has ${graph.length} bytes, a graph may have at most ${MAX_GRAPH_BYTES}`);
    }
    const locations = named(`${origin}/${file}`, () => externalLocations(graph));
    const foreign = [...locations].filter((location) => !manifest.weights.includes(location));
    if (foreign.length > 0) {
      const allowed = listed(manifest.weights) || "itself";
      throw new BundleError(`${origin}/${file}: refused: reads ${listed(foreign)}, not only ${allowed}`);
    }
  }
}

function graphFiles({ graphs, weights }: Manifest): string[] {
  return [...Object.values(graphs).map(({ file }) => file), ...weights];
}

/** Runs `read`; a BundleError of it gets the place in front. */
function named<T>(place: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof BundleError ? new BundleError(`${place}: ${error.message}`) : error;
  }
}

function listed(names: readonly string[]): string {
  const more = names.length > SHOWN_NAMES ? ` and ${names.length - SHOWN_NAMES} more` : "";
  return names.slice(0, SHOWN_NAMES).map((name) => JSON.stringify(name).slice(1, -1)).join(", ") + more;
}
