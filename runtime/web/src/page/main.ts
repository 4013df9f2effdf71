/** The translator page: loads the bundle beside it in a worker, and translates while the user types. */

import type { TruncationWarning } from "../errors.js";
import { RemoteTranslator } from "../remote.js";
import type { Translation } from "../translation.js";
import { showAttention } from "./attention.js";
import { readOptions, showOptions } from "./controls.js";
import { element } from "./element.js";
import { keepForOffline } from "./offline.js";
import { setUpTheme } from "./theme.js";
import { showAlternatives, showError, showLoading, showMemory, showResult, showSpeed, showWorking } from "./view.js";

const BUNDLE = "bundle/";
const ENGINE = "ort/ort-wasm-simd-threaded.mjs";
const PAUSE_MS = 250; // without a key before the translation starts
const FIRST_TEXT = new URLSearchParams(location.search).get("text"); // a page can be linked with a text

const source = element("source", HTMLTextAreaElement);
const form = element("options", HTMLFormElement);

class Page {
  private running: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private shown: readonly Translation[] = [];

  private readonly attends: boolean;

  constructor(private readonly translator: RemoteTranslator) {
    const { outputs } = translator.manifest.graphs["decoder"]!;
    this.attends = outputs.some(({ name }) => name.startsWith("cross_attention"));
  }

  /** Translates once no key was pressed for a while; what runs is outdated and ends now. */
  schedule(pause: number = PAUSE_MS): void {
    this.cancel();
    element("result").classList.add("stale");
    this.timer = setTimeout(() => void this.translate(), pause);
  }

  cancel(): void {
    clearTimeout(this.timer);
    this.running?.abort();
  }

  showAlternatives(): void {
    const line = source.value.slice(0, source.selectionStart).split("\n").length - 1;
    showAlternatives(this.shown[line], this.shown.length > 1 ? line + 1 : null);
    showAttention(this.shown[line]);
  }

  private async translate(): Promise<void> {
    const running = (this.running = new AbortController());
    const lines = source.value.split("\n");
    const started = performance.now();
    showWorking(true);
    showError(null);
    try {
      const warnings: string[] = [];
      const warn = ({ index, problem }: TruncationWarning) => warnings.push(`Line ${index + 1} ${problem}.`);
      const options = { ...readOptions(form), truncate_source: true, attention: this.attends, signal: running.signal, warn };
      this.shown = await this.translator.translate(lines, options);
      showResult(this.shown, this.translator.manifest.target.tokenizer.kind);
      showSpeed(this.shown, performance.now() - started);
      showError(warnings.length > 0 ? warnings.join(" ") : null);
      this.showAlternatives();
      void showMemory();
    } catch (error) {
      if (!running.signal.aborted) showError(error);
    } finally {
      if (this.running === running) showWorking(false);
    }
  }
}

async function start(): Promise<void> {
  setUpTheme(element("theme", HTMLButtonElement));
  const translator = await RemoteTranslator.load(BUNDLE, { ort: ENGINE, onProgress: showLoading });
  const { model, precision } = translator.manifest;
  const page = new Page(translator);
  showLoading(null);
  document.title = `Translator: ${model.name}`;
  const size = `${(model.parameters / 1e6).toFixed(1)} million parameters`;
  element("model").textContent = `${model.name}, ${size}, ${precision}. No text leaves the device.`;
  element("engine").textContent = `Engine: ${translator.backend}`;
  showOptions(form, translator.default_options);
  connect(page);
  if (FIRST_TEXT !== null && source.value === "") source.value = FIRST_TEXT;
  page.schedule(0);
  await keepForOffline(element("offline"));
}

function connect(page: Page): void {
  source.addEventListener("input", () => page.schedule());
  form.addEventListener("input", () => {
    showOptions(form, null);
    page.schedule();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("selectionchange", () => page.showAlternatives());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") page.cancel();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) page.schedule(0);
  });
  element("cancel").addEventListener("click", () => {
    page.cancel();
    source.focus();
  });
  element("clear").addEventListener("click", () => {
    source.value = "";
    source.focus();
    page.schedule(0);
  });
  element("copy").addEventListener("click", () => void navigator.clipboard.writeText(element("result").innerText));
  element("shading", HTMLInputElement).addEventListener("input", ({ target }) => {
    element("result").classList.toggle("shaded", (target as HTMLInputElement).checked);
  });
}

start().catch((error: unknown) => {
  showLoading(null);
  showError(error);
  element("engine").textContent = "The model is not loaded.";
});
