/**
 * Lines of text in, lines of text out: what a command needs around `Translator.translate`.
 *
 * A line ends with LF (a CR before it is dropped); no other character ends one. As many lines come out as go in.
 */

import { InputError } from "./errors.js";
import type { Hypothesis, Translation } from "./translation.js";
import type { TranslateOptions, Translator } from "./translator.js";
import { decodeUtf8, firstInvalid } from "./utf8.js";

const MAX_LINE_BYTES = 2 ** 20;
const CHUNK_LINES = 512; // lines translated together at most
const LF = 10;
const CR = 13;

export type Format = "text" | "scores" | "json";

/** Numbers (from 1) and translations of the lines, in order, in chunks as the lines arrive. Throws InputError. */
export async function* translateLines(
  translator: Translator,
  stream: AsyncIterable<Uint8Array>,
  options: TranslateOptions,
  warn: (message: string) => void,
): AsyncGenerator<[number, Translation][]> {
  await translator.translate([], options); // options are checked even where no line comes
  let done = 0;
  for await (const lines of readChunks(stream)) {
    const before = done;
    const named = (index: number, problem: string) => `input, line ${before + index + 1} ${problem}`;
    try {
      const call = { ...options, warn: (w: { index: number; problem: string }) => warn(named(w.index, w.problem)) };
      const translations = await translator.translate(lines, call);
      yield translations.map((translation, i) => [before + i + 1, translation]);
    } catch (error) {
      const atLine = error instanceof InputError && error.index !== undefined;
      throw atLine ? new InputError(named(error.index!, error.problem)) : error;
    }
    done += lines.length;
  }
}

/** Complete lines as they arrive, so that a slow pipe gets its answers at once. Throws InputError. */
export async function* readChunks(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string[]> {
  let rest: Uint8Array = new Uint8Array();
  let done = 0;
  for await (const block of stream) {
    const bytes = joined(rest, block);
    let lines: string[] = [];
    let start = 0;
    for (let end = bytes.indexOf(LF); end >= 0; end = bytes.indexOf(LF, start)) {
      lines.push(lineOf(bytes.subarray(start, end), ++done));
      start = end + 1;
      if (lines.length < CHUNK_LINES) continue;
      yield lines;
      lines = [];
    }
    if (lines.length > 0) yield lines;
    rest = bytes.subarray(start);
    if (rest.length > MAX_LINE_BYTES) {
      throw new InputError(`input, line ${done + 1} is longer than ${MAX_LINE_BYTES} bytes; is this text?`);
    }
  }
  if (rest.length > 0) yield [lineOf(rest, done + 1)];
}

/** What is written for one line of input: as the Python command writes it. */
export function formatted(line: number, translation: Translation, form: Format, nBest: number): string {
  if (form === "json") return JSON.stringify({ line, hypotheses: translation.hypotheses.map(inOrder) }) + "\n";
  const rows = translation.hypotheses.slice(0, nBest).map((h) => [
    ...(nBest > 1 ? [String(line)] : []),
    ...(form === "scores" ? [h.score.toFixed(4)] : []),
    h.text.replace(/[\r\n]/g, " "),
  ]);
  return rows.map((row) => row.join("\t") + "\n").join("");
}

function inOrder({ text, score, tokens, ids, token_scores, finish_reason, truncated }: Hypothesis) {
  return { text, score, tokens, ids, token_scores, finish_reason, truncated };
}

function lineOf(bytes: Uint8Array, number: number): string {
  const line = bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
  const wrong = firstInvalid(line);
  if (wrong >= 0) {
    const found = `byte ${wrong + 1} is 0x${line[wrong]!.toString(16).padStart(2, "0")}`;
    throw new InputError(`input, line ${number} is not UTF-8 (${found}); convert it first`);
  }
  const text = decodeUtf8(line);
  return number === 1 ? text.replace(/^\ufeff/, "") : text;
}

function joined(one: Uint8Array, other: Uint8Array): Uint8Array {
  if (one.length === 0) return other;
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}
