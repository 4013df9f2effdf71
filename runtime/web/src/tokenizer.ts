/** Text to ids and back, exactly as the model was trained. See SPEC.md, "Tokenizers". */

import { BundleError, InputError } from "./errors.js";
import { SentencePiece } from "./sentencepiece.js";
import { plainIds, type IdList } from "./step_model.js";
import { decodeUtf8, firstInvalid, hasLoneSurrogate } from "./utf8.js";

export const TOKENIZER_KINDS = ["sentencepiece", "words", "characters"] as const;
export type TokenizerKind = (typeof TOKENIZER_KINDS)[number];

// Unicode's White_Space, U+200B and U+FEFF. Written out, because languages differ in what they call white space.
const WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200b\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff";
const WORDS = new RegExp(`[^${WHITE_SPACE}]+`, "gu");
const AROUND = new RegExp(`^[${WHITE_SPACE}]+|[${WHITE_SPACE}]+$`, "gu");

/** One vocabulary. Ids are positions in it. */
export interface Tokenizer {
  readonly size: number;

  /** The ids of the text, without start or end tokens; empty for empty or white-space text. */
  encode(text: string): number[];

  /** The text of the ids; control tokens of SentencePiece vanish, broken byte runs become U+FFFD. */
  decode(ids: IdList): string;

  /** The written form of each id. */
  tokens(ids: IdList): string[];
}

/** `data` is the file as it lies in the bundle. Throws BundleError. */
export function loadTokenizer(kind: TokenizerKind, data: Uint8Array, unkId: number): Tokenizer {
  if (kind === "sentencepiece") return new SentencePieceTokenizer(data);
  return new TokenListTokenizer(data, unkId, kind === "words" ? " " : "");
}

/** A SentencePiece model of any type; normalisation and byte fallback are its own. */
class SentencePieceTokenizer implements Tokenizer {
  readonly size: number;
  private readonly processor: SentencePiece;

  constructor(model: Uint8Array) {
    this.processor = new SentencePiece(model);
    this.size = this.processor.size;
  }

  encode(text: string): number[] {
    if (hasLoneSurrogate(text)) throw new InputError("holds a lone surrogate, which is not a character");
    if (text.replace(AROUND, "") === "") return []; // a model without normalisation would make tokens of it
    return this.processor.encode(text);
  }

  decode(ids: IdList): string {
    return this.processor.decode(plainIds(ids));
  }

  tokens(ids: IdList): string[] {
    return plainIds(ids).map((id) => this.processor.token(id));
  }
}

/** A plain list, one token a line, the line number being the id; words parted by white space, or characters. */
class TokenListTokenizer implements Tokenizer {
  readonly size: number;
  private readonly list: string[];
  private readonly ids: Map<string, number>;

  constructor(
    data: Uint8Array,
    private readonly unkId: number,
    private readonly separator: " " | "",
  ) {
    const invalid = firstInvalid(data);
    if (invalid >= 0) throw new BundleError(`token list is not UTF-8: byte ${invalid + 1}`);
    const text = decodeUtf8(data);
    if (text.trim() === "") throw new BundleError("token list is empty");
    this.list = text.replace(/\n$/, "").split("\n");
    this.ids = new Map(this.list.map((token, id) => [token, id]));
    if (this.ids.size !== this.list.length) throw new BundleError("token list names a token twice");
    this.size = this.list.length;
  }

  encode(text: string): number[] {
    const parts = this.separator === " " ? (text.match(WORDS) ?? []) : [...text.replace(AROUND, "")];
    return parts.map((part) => this.ids.get(part) ?? this.unkId);
  }

  decode(ids: IdList): string {
    return this.tokens(ids).join(this.separator);
  }

  tokens(ids: IdList): string[] {
    return plainIds(ids).map((id) => {
      const token = this.list[id];
      if (token === undefined) throw new RangeError(`id ${id} is outside of the ${this.size} tokens`);
      return token;
    });
  }
}

/** A tokenizer with more tokens than the model has: what the model does not know is the unknown token to it. */
export class BoundedTokenizer implements Tokenizer {
  constructor(
    private readonly whole: Tokenizer,
    readonly size: number,
    private readonly unkId: number,
  ) {}

  encode(text: string): number[] {
    return this.whole.encode(text).map((id) => (id < this.size ? id : this.unkId));
  }

  decode(ids: IdList): string {
    return this.whole.decode(ids);
  }

  tokens(ids: IdList): string[] {
    return this.whole.tokens(ids);
  }
}
