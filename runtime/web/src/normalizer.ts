/**
 * SentencePiece's text normalisation: user-defined symbols stay, compiled rules replace the longest match, white space
 * is trimmed and written as U+2581.
 *
 * The rules are a double-array trie over UTF-8 bytes (Yata et al. 2007, "A compact static double-array keeping
 * character codes", in the layout of darts-clone) and a blob of replacement texts.
 */

import { BundleError } from "./errors.js";
import type { NormalizerSpec } from "./sentencepiece_model.js";
import { characterLength, decodeUtf8, encodeUtf8 } from "./utf8.js";

export const SPACE_SYMBOL = "\u2581";

/** Finds the longest of some symbols that a text has at a place. */
export class PrefixMatcher {
  private readonly byFirst = new Map<string, string[]>(); // first UTF-16 unit -> symbols, longest first

  constructor(symbols: readonly string[]) {
    for (const symbol of [...symbols].sort((a, b) => b.length - a.length)) {
      const found = this.byFirst.get(symbol[0]!);
      if (found === undefined) this.byFirst.set(symbol[0]!, [symbol]);
      else found.push(symbol);
    }
  }

  /** The symbol, or undefined for none. */
  longest(text: string, place: number): string | undefined {
    return this.byFirst.get(text[place]!)?.find((symbol) => text.startsWith(symbol, place));
  }
}

export class Normalizer {
  private readonly rules: Rules | null;

  constructor(
    private readonly spec: NormalizerSpec,
    private readonly symbols: PrefixMatcher,
    private readonly whitespaceAsSuffix: boolean,
  ) {
    this.rules = spec.charsmap.length > 0 ? new Rules(spec.charsmap) : null;
  }

  normalize(text: string): string {
    const { addDummyPrefix, removeExtraWhitespaces, escapeWhitespaces } = this.spec;
    const space = escapeWhitespaces ? SPACE_SYMBOL : " ";
    const parts = this.parts(text);
    if (removeExtraWhitespaces) while (parts[0] === " ") parts.shift();
    if (parts.length === 0) return "";
    let normalized = "";
    let afterSpace = removeExtraWhitespaces;
    for (let part of parts) {
      if (afterSpace) part = part.replace(/^ +/, "");
      if (part !== "") {
        normalized += part;
        afterSpace = removeExtraWhitespaces && part.endsWith(" ");
      }
    }
    if (escapeWhitespaces) normalized = normalized.replaceAll(" ", SPACE_SYMBOL);
    if (addDummyPrefix && !this.whitespaceAsSuffix) normalized = space + normalized;
    if (removeExtraWhitespaces) while (normalized.endsWith(space)) normalized = normalized.slice(0, -1);
    return addDummyPrefix && this.whitespaceAsSuffix ? normalized + space : normalized;
  }

  /** The text cut into what the rules replace at once, already replaced. A part may be empty. */
  private parts(text: string): string[] {
    const parts: string[] = [];
    const bytes = this.rules === null ? null : encodeUtf8(text);
    let at = 0; // the same place as `i`, in bytes
    for (let i = 0; i < text.length; ) {
      const symbol = this.symbols.longest(text, i);
      const rule = symbol === undefined && bytes !== null ? this.rules!.longest(bytes, at) : null;
      const part = symbol ?? String.fromCodePoint(text.codePointAt(i)!);
      const size = rule?.size ?? encodedLength(part);
      parts.push(rule?.text ?? part);
      i += rule === null ? part.length : unitsOf(bytes!, at, size);
      at += size;
    }
    return parts;
  }
}

/** The compiled rules of a model. */
class Rules {
  private readonly units: Uint32Array;
  private readonly texts: Uint8Array;
  private readonly known = new Map<number, string>();

  constructor(charsmap: Uint8Array) {
    const view = new DataView(charsmap.buffer, charsmap.byteOffset, charsmap.byteLength);
    const size = charsmap.length >= 4 ? view.getUint32(0, true) : Infinity;
    if (size + 4 > charsmap.length || size % 4 !== 0) throw new BundleError("not a SentencePiece model: broken rules");
    this.units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.texts = charsmap.subarray(4 + size);
  }

  /** The longest rule that matches the bytes at a place: how many bytes it takes, and what it makes of them. */
  longest(bytes: Uint8Array, start: number): { size: number; text: string } | null {
    let [value, size] = [-1, 0];
    let node = offset(this.unit(0));
    for (let i = start; i < bytes.length; i++) {
      node ^= bytes[i]!;
      const unit = this.unit(node);
      if ((unit & 0x800000ff) >>> 0 !== bytes[i]) break;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) {
        value = this.unit(node) & 0x7fffffff;
        size = i + 1 - start;
      }
    }
    return size === 0 ? null : { size, text: this.replacement(value) };
  }

  private unit(node: number): number {
    const unit = this.units[node];
    if (unit === undefined) throw new BundleError("not a SentencePiece model: broken rules");
    return unit;
  }

  /** Texts end with a zero byte. */
  private replacement(place: number): string {
    let text = this.known.get(place);
    if (text === undefined) {
      const end = this.texts.indexOf(0, place);
      text = decodeUtf8(this.texts, place, end < 0 ? this.texts.length : end);
      this.known.set(place, text);
    }
    return text;
  }
}

function offset(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

/** UTF-16 units of the text in these bytes. */
function unitsOf(bytes: Uint8Array, start: number, size: number): number {
  let units = 0;
  for (let i = start; i < start + size; ) {
    const length = characterLength(bytes[i]!);
    units += length === 4 ? 2 : 1;
    i += length;
  }
  return units;
}

/** UTF-8 bytes of a text. */
export function encodedLength(text: string): number {
  let bytes = 0;
  for (const character of text) {
    const code = character.codePointAt(0)!;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}
