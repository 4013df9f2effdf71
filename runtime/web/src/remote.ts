/** The page's side of a worker: the same calls as Translator, and the page stays free while it works. */

import type { LoadProgress } from "./bundle.js";
import { UnavailableError } from "./errors.js";
import type { Manifest } from "./manifest.js";
import { revivedError, type Answer, type AnswerMessage, type Call, type LoadRequest, type Value } from "./messages.js";
import type { TranslationOptions } from "./options.js";
import type { Translation } from "./translation.js";
import type { TranslateOptions } from "./translator.js";

export interface RemoteOptions extends Partial<Pick<LoadRequest, "verify" | "ort" | "wasm_paths" | "threads" | "provider">> {
  /** A worker that runs worker.js of this package, if the one beside this module cannot be used. */
  readonly worker?: Worker | undefined;
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
}

interface Pending {
  resolve(value: Value): void;
  reject(reason: unknown): void;
  hear(answer: Answer): void;
}

export class RemoteTranslator {
  manifest!: Manifest; // there once `load` has returned
  default_options!: TranslationOptions;
  backend!: string;
  private readonly pending = new Map<number, Pending>();
  private next = 0;

  private constructor(private readonly worker: Worker) {
    worker.addEventListener("message", ({ data }: MessageEvent<AnswerMessage>) => this.receive(data));
    worker.addEventListener("error", (event) => {
      const error = new UnavailableError(`the worker failed: ${event.message || "it could not be loaded"}`);
      for (const call of this.pending.values()) call.reject(error);
      this.pending.clear();
    });
  }

  /** Throws BundleError, UnavailableError. The source must be one that can be sent: an address, files or a zip. */
  static async load(source: LoadRequest["source"] | URL, options: RemoteOptions = {}): Promise<RemoteTranslator> {
    const worker = options.worker ?? new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    const remote = new RemoteTranslator(worker);
    const { verify, ort, wasm_paths, threads, provider } = options;
    const sent = source instanceof URL ? source.href : typeof source === "string" ? absolute(source) : source;
    const places = { ort: ort && absolute(ort), wasm_paths: wasm_paths && absolute(wasm_paths) };
    const call: Call = { kind: "load", source: sent, verify, ...places, threads, provider };
    const hear = (answer: Answer) => {
      if (answer.kind === "loading") options.onProgress?.(answer.progress);
    };
    try {
      Object.assign(remote, await remote.ask(call, hear).answer);
      return remote;
    } catch (error) {
      worker.terminate();
      throw error;
    }
  }

  /** As Translator.translate; where the callback returns true, the sentence ends a little later. */
  async translate(texts: readonly string[], options: TranslateOptions = {}): Promise<Translation[]> {
    const { prefixes, attention, callback, signal, warn, ...changes } = options;
    signal?.throwIfAborted();
    const watched = callback !== undefined;
    const { id, answer } = this.ask({ kind: "translate", texts, changes, prefixes, attention, watched }, (heard) => {
      if (heard.kind === "warning") (warn ?? console.warn)(heard.warning);
      if (heard.kind !== "progress" || !callback?.(heard.progress)) return;
      const { sentence, sample } = heard.progress;
      this.tell({ kind: "cancel", call: id, sentence, sample });
    });
    const abort = () => {
      this.tell({ kind: "abort", call: id });
      this.pending.get(id)?.reject(signal!.reason);
      this.pending.delete(id);
    };
    signal?.addEventListener("abort", abort);
    try {
      return (await answer) as Translation[];
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** As Translator.encoderStates. */
  async encoderStates(texts: readonly string[]): Promise<Float32Array[][]> {
    return (await this.ask({ kind: "encoder_states", texts }, () => undefined).answer) as Float32Array[][];
  }

  /** Frees the engine and ends the worker. */
  async release(): Promise<void> {
    await this.ask({ kind: "release" }, () => undefined).answer;
    this.worker.terminate();
  }

  private ask(call: Call, hear: (answer: Answer) => void) {
    const id = this.next;
    const answer = new Promise<Value>((resolve, reject) => {
      this.pending.set(id, { resolve, reject, hear });
    });
    this.tell(call);
    return { id, answer };
  }

  private tell(call: Call): void {
    this.worker.postMessage({ id: this.next++, call });
  }

  private receive({ id, answer }: AnswerMessage): void {
    const call = this.pending.get(id);
    if (answer.kind === "done" || answer.kind === "failed") this.pending.delete(id);
    if (answer.kind === "done") call?.resolve(answer.value);
    else if (answer.kind === "failed") call?.reject(revivedError(answer.error));
    else call?.hear(answer);
  }
}

/** A worker has its own idea of where it is. */
function absolute(address: string): string {
  return new URL(address, globalThis.location?.href).href;
}
