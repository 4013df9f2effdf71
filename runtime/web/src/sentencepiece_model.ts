/** A SentencePiece `.model` file: a protobuf ModelProto. Field numbers are those of sentencepiece_model.proto. */

import { BundleError } from "./errors.js";
import { BYTES, FIXED32, readFields, VARINT, type Field } from "./protobuf.js";
import { decodeUtf8, firstInvalid } from "./utf8.js";

export const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const UNUSED = 5;
export const BYTE = 6;

export type Segmentation = "unigram" | "bpe" | "word" | "char";
const SEGMENTATIONS: readonly Segmentation[] = ["unigram", "bpe", "word", "char"]; // model_type 1 to 4

const WHAT = "a SentencePiece model";

export interface Piece {
  readonly text: string;
  readonly score: number; // float32
  readonly type: number;
}

export interface NormalizerSpec {
  readonly charsmap: Uint8Array; // compiled rules; empty for none
  readonly addDummyPrefix: boolean;
  readonly removeExtraWhitespaces: boolean;
  readonly escapeWhitespaces: boolean;
}

export interface SentencePieceModel {
  readonly pieces: readonly Piece[];
  readonly segmentation: Segmentation;
  readonly byteFallback: boolean;
  readonly whitespaceAsSuffix: boolean;
  readonly unknownSurface: string; // what an unknown token is written as
  readonly normalizer: NormalizerSpec;
  readonly denormalizer: NormalizerSpec | null; // null for none
}

/** Throws BundleError for anything that the library itself would refuse. */
export function readModel(bytes: Uint8Array): SentencePieceModel {
  const pieces: Piece[] = [];
  let trainer = { start: 0, end: 0 };
  let normalizer = { start: 0, end: 0 };
  let denormalizer: Field | null = null;
  for (const field of readFields(bytes, 0, bytes.length, WHAT)) {
    if (field.wire !== BYTES) continue;
    if (field.number === 1) pieces.push(readPiece(bytes, field));
    else if (field.number === 2) trainer = field;
    else if (field.number === 3) normalizer = field;
    else if (field.number === 5) denormalizer = field;
  }
  const denormalizing = denormalizer === null ? null : readNormalizer(bytes, denormalizer);
  const model = {
    pieces,
    ...readTrainer(bytes, trainer),
    normalizer: readNormalizer(bytes, normalizer),
    denormalizer: denormalizing !== null && denormalizing.charsmap.length > 0 ? denormalizing : null,
  };
  checkPieces(model);
  return model;
}

function readPiece(bytes: Uint8Array, message: Field): Piece {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let [text, score, type] = ["", 0, NORMAL];
  for (const field of readFields(bytes, message.start, message.end, WHAT)) {
    if (field.number === 1 && field.wire === BYTES) text = readText(bytes, field);
    else if (field.number === 2 && field.wire === FIXED32) score = view.getFloat32(field.start, true);
    else if (field.number === 3 && field.wire === VARINT) type = field.value;
  }
  return { text, score, type };
}

function readTrainer(bytes: Uint8Array, message: { start: number; end: number }) {
  let segmentation: Segmentation | undefined = "unigram";
  let [byteFallback, whitespaceAsSuffix, unknownSurface] = [false, false, " \u2047 "];
  for (const field of readFields(bytes, message.start, message.end, WHAT)) {
    if (field.number === 3) segmentation = SEGMENTATIONS[field.value - 1];
    else if (field.number === 24) whitespaceAsSuffix = field.value !== 0;
    else if (field.number === 35) byteFallback = field.value !== 0;
    else if (field.number === 44 && field.wire === BYTES) unknownSurface = readText(bytes, field);
  }
  if (segmentation === undefined) throw new BundleError(`not ${WHAT}: its type is unknown`);
  return { segmentation, byteFallback, whitespaceAsSuffix, unknownSurface };
}

function readNormalizer(bytes: Uint8Array, message: { start: number; end: number }): NormalizerSpec {
  let charsmap: Uint8Array = new Uint8Array();
  let [addDummyPrefix, removeExtraWhitespaces, escapeWhitespaces] = [true, true, true];
  for (const field of readFields(bytes, message.start, message.end, WHAT)) {
    if (field.number === 2 && field.wire === BYTES) charsmap = bytes.slice(field.start, field.end);
    else if (field.number === 3) addDummyPrefix = field.value !== 0;
    else if (field.number === 4) removeExtraWhitespaces = field.value !== 0;
    else if (field.number === 5) escapeWhitespaces = field.value !== 0;
  }
  return { charsmap, addDummyPrefix, removeExtraWhitespaces, escapeWhitespaces };
}

function readText(bytes: Uint8Array, field: Field): string {
  const part = bytes.subarray(field.start, field.end);
  if (firstInvalid(part) >= 0) throw new BundleError(`not ${WHAT}: a piece is not UTF-8`);
  return decodeUtf8(part);
}

function checkPieces({ pieces, byteFallback }: SentencePieceModel): void {
  if (pieces.length === 0) throw new BundleError(`not ${WHAT}: it holds no pieces`);
  if (pieces.some((piece) => piece.text === "")) throw new BundleError(`not ${WHAT}: a piece is empty`);
  const texts = new Set(pieces.map((piece) => piece.text));
  if (texts.size !== pieces.length) throw new BundleError(`not ${WHAT}: a piece appears twice`);
  const unknown = pieces.filter((piece) => piece.type === UNKNOWN).length;
  if (unknown !== 1) throw new BundleError(`not ${WHAT}: it has ${unknown} unknown tokens, not one`);
  const bytes = pieces.filter((piece) => piece.type === BYTE);
  const expected = byteFallback ? 256 : 0;
  if (bytes.length !== expected || !bytes.every((piece) => byteOf(piece.text) >= 0)) {
    throw new BundleError(`not ${WHAT}: it has ${bytes.length} byte pieces, expected ${expected}`);
  }
}

/** The value of a byte piece such as <0x0A>; -1 for other text. */
export function byteOf(text: string): number {
  return /^<0x[0-9A-F]{2}>$/.test(text) ? parseInt(text.slice(3, 5), 16) : -1;
}
