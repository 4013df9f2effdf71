/**
 * SentencePiece without the library: the same ids from the same `.model` file. How the text is cut into pieces is in
 * segmentation.ts; here pieces become ids, and ids text.
 */

import { BundleError } from "./errors.js";
import { Normalizer, PrefixMatcher, SPACE_SYMBOL } from "./normalizer.js";
import { BYTE, byteOf, CONTROL, readModel, UNKNOWN, USER_DEFINED, type SentencePieceModel } from "./sentencepiece_model.js";
import { makeSegmenter, type Segmenter } from "./segmentation.js";
import { decodeUtf8, encodeUtf8 } from "./utf8.js";

export class SentencePiece {
  readonly size: number;
  private readonly model: SentencePieceModel;
  private readonly normalizer: Normalizer;
  private readonly denormalizer: Normalizer | null;
  private readonly segmenter: Segmenter;
  private readonly ids: Map<string, number>;
  private readonly unknown: number;
  private readonly byteIds: number[];

  /** `data` is the whole `.model` file. Throws BundleError. */
  constructor(data: Uint8Array) {
    const model = readModel(data);
    const symbols = new PrefixMatcher(model.pieces.filter((p) => p.type === USER_DEFINED).map((p) => p.text));
    this.model = model;
    this.size = model.pieces.length;
    this.normalizer = new Normalizer(model.normalizer, symbols, model.whitespaceAsSuffix);
    this.denormalizer = model.denormalizer && new Normalizer(model.denormalizer, new PrefixMatcher([]), false);
    this.ids = new Map(model.pieces.map((piece, id) => [piece.text, id]));
    this.unknown = model.pieces.findIndex((piece) => piece.type === UNKNOWN);
    this.byteIds = bytePieces(model);
    this.segmenter = makeSegmenter(model, symbols);
  }

  encode(text: string): number[] {
    const normalized = this.normalizer.normalize(text);
    const ids: number[] = [];
    let afterUnknown = false;
    for (const piece of normalized === "" ? [] : this.segmenter(normalized)) {
      const id = this.ids.get(piece) ?? this.unknown;
      const isUnknown = id === this.unknown;
      if (isUnknown && this.model.byteFallback) {
        for (const byte of encodeUtf8(piece)) ids.push(this.byteIds[byte]!);
      } else if (!isUnknown || !afterUnknown) {
        ids.push(id); // a run of unknown pieces is one token
      }
      afterUnknown = isUnknown;
    }
    return ids;
  }

  /** Throws RangeError for an id outside of the vocabulary. */
  decode(ids: readonly number[]): string {
    const { addDummyPrefix, removeExtraWhitespaces } = this.model.normalizer;
    const dropsSpace = addDummyPrefix || removeExtraWhitespaces;
    let text = "";
    let bytes: number[] = [];
    let atStart = true;
    let droppedOne = false;
    for (const id of ids) {
      const piece = this.piece(id);
      if (piece.type === BYTE) {
        bytes.push(byteOf(piece.text));
        continue;
      }
      text += decodeUtf8(Uint8Array.from(bytes));
      bytes = [];
      if (droppedOne || text !== "") atStart = false;
      droppedOne = false;
      if (piece.type === CONTROL) continue;
      if (piece.type === UNKNOWN) {
        text += this.model.unknownSurface;
        continue;
      }
      const drop = atStart && dropsSpace && piece.text.startsWith(SPACE_SYMBOL);
      droppedOne = drop && !removeExtraWhitespaces; // with it, all leading spaces go
      text += (drop ? piece.text.slice(1) : piece.text).replaceAll(SPACE_SYMBOL, " ");
    }
    text += decodeUtf8(Uint8Array.from(bytes));
    return this.denormalizer === null ? text : this.denormalizer.normalize(text);
  }

  /** The written form of an id. Throws RangeError. */
  token(id: number): string {
    return this.piece(id).text;
  }

  private piece(id: number) {
    const piece = this.model.pieces[id];
    if (piece === undefined) throw new RangeError(`id ${id} is outside of the ${this.size} pieces`);
    return piece;
  }
}

/** Id of each byte value; empty without byte fallback. Throws BundleError where one is missing. */
function bytePieces(model: SentencePieceModel): number[] {
  if (!model.byteFallback) return [];
  const ids: number[] = new Array<number>(256).fill(-1);
  for (const [id, piece] of model.pieces.entries()) if (piece.type === BYTE) ids[byteOf(piece.text)] = id;
  if (ids.includes(-1)) throw new BundleError("not a SentencePiece model: a byte piece is missing");
  return ids;
}
