/** What the page shows. Nothing here decides anything. */

import type { LoadProgress } from "../bundle.js";
import type { TokenizerKind } from "../tokenizer.js";
import type { Hypothesis, Translation } from "../translation.js";
import { element } from "./element.js";

const UNSURE = 0.5; // tokens below this probability are underlined, for eyes that do not see the shade

/** Null when nothing is loading any more. */
export function showLoading(progress: LoadProgress | null): void {
  const box = element("loading");
  box.hidden = progress === null;
  if (progress === null) return;
  element("progress", HTMLProgressElement).value = progress.loaded / progress.total;
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  const done = progress.loaded >= progress.total;
  element("loading-text").textContent = done
    ? "Starting the engine …"
    : `Loading ${progress.file}: ${megabytes(progress.loaded)} of ${megabytes(progress.total)} MB`;
}

export function showError(error: unknown): void {
  const box = element("error");
  box.hidden = error === null;
  box.textContent = error === null ? "" : error instanceof Error ? error.message : String(error);
}

export function showWorking(working: boolean): void {
  element("working").hidden = !working;
  element("speed").hidden = working;
  element("cancel", HTMLButtonElement).disabled = !working;
  element("result").setAttribute("aria-busy", String(working));
}

/** The best translation of every line, its tokens shaded by their probability. */
export function showResult(translations: readonly Translation[], kind: TokenizerKind): void {
  const result = element("result");
  result.classList.remove("stale");
  result.classList.toggle("shaded", element("shading", HTMLInputElement).checked);
  const lines = translations.map(({ hypotheses }) => {
    const line = document.createElement("p");
    line.append(...parts(hypotheses[0]!, kind).flatMap(tokenNodes));
    return line;
  });
  const empty = translations.every(({ text }) => text === "");
  result.replaceChildren(...(empty ? [placeholder()] : lines));
  element("copy", HTMLButtonElement).disabled = empty;
  const characters = translations.length > 1 ? `${translations.length} lines` : "";
  element("count").textContent = characters;
}

/** The hypotheses of one line; `line` is its number where there are several. */
export function showAlternatives(translation: Translation | undefined, line: number | null): void {
  const hypotheses = translation?.hypotheses ?? [];
  element("alternatives").hidden = hypotheses.length < 2;
  element("alternatives-label").textContent = line === null ? "Alternatives" : `Alternatives for line ${line}`;
  element("hypotheses").replaceChildren(...hypotheses.map(hypothesisElement));
}

export function showSpeed(translations: readonly Translation[], milliseconds: number): void {
  const tokens = translations.reduce((sum, { hypotheses }) => sum + hypotheses[0]!.token_scores.length, 0);
  const rate = tokens === 0 ? "" : `, ${Math.round((1000 * tokens) / milliseconds)} tokens/s`;
  element("speed").textContent = tokens === 0 ? "" : `${Math.round(milliseconds)} ms${rate}`;
}

interface MeasuringPerformance extends Performance {
  measureUserAgentSpecificMemory?(): Promise<{ bytes: number }>; // Chromium, isolated pages only
}

export async function showMemory(): Promise<void> {
  if (!globalThis.crossOriginIsolated) return;
  const measured = await (performance as MeasuringPerformance).measureUserAgentSpecificMemory?.();
  if (measured !== undefined) element("memory").textContent = `Memory: ${Math.round(measured.bytes / 2 ** 20)} MiB`;
}

interface Part {
  readonly text: string;
  readonly probability: number;
}

/** The text in pieces with a probability each; in one piece where the tokens do not spell it, as with bytes. */
function parts(hypothesis: Hypothesis, kind: TokenizerKind): Part[] {
  const probabilities = hypothesis.token_scores.map(Math.exp);
  const written = hypothesis.tokens.map((token, i) => {
    if (kind === "sentencepiece") return token.replaceAll("\u2581", " ");
    return kind === "words" && i > 0 ? ` ${token}` : token;
  });
  if (written.length > 0 && kind === "sentencepiece") written[0] = written[0]!.replace(/^ /, "");
  if (written.join("") === hypothesis.text) return written.map((text, i) => ({ text, probability: probabilities[i]! }));
  const mean = hypothesis.token_scores.reduce((a, b) => a + b, 0) / Math.max(1, probabilities.length);
  return [{ text: hypothesis.text, probability: Math.exp(mean) }];
}

/** The space before a token is not shaded. */
function tokenNodes({ text, probability }: Part): Node[] {
  const span = document.createElement("span");
  span.className = probability < UNSURE ? "token unsure" : "token";
  span.style.setProperty("--doubt", (1 - probability).toFixed(3));
  span.title = `${Math.round(100 * probability)} %`;
  span.textContent = text.replace(/^ /, "");
  return text.startsWith(" ") ? [document.createTextNode(" "), span] : [span];
}

function hypothesisElement({ text, score, truncated }: Hypothesis): HTMLElement {
  const item = document.createElement("li");
  const number = document.createElement("span");
  number.className = "score";
  number.textContent = score.toFixed(3);
  const words = document.createElement("span");
  words.textContent = text;
  if (truncated) {
    const cut = document.createElement("span");
    cut.className = "cut";
    cut.textContent = " (cut at the length limit)";
    words.append(cut);
  }
  item.append(number, words);
  return item;
}

function placeholder(): HTMLElement {
  const line = document.createElement("p");
  line.className = "empty";
  line.textContent = "The translation appears here.";
  return line;
}
