/** How normalised text is cut into pieces: the four kinds of SentencePiece models. */

import { encodedLength, SPACE_SYMBOL, type PrefixMatcher } from "./normalizer.js";
import {
  BYTE,
  CONTROL,
  NORMAL,
  UNKNOWN,
  UNUSED,
  USER_DEFINED,
  type Piece,
  type SentencePieceModel,
} from "./sentencepiece_model.js";

/** Normalised text, not empty -> its pieces; those that the model does not know are single characters or words. */
export type Segmenter = (text: string) => string[];

export function makeSegmenter(model: SentencePieceModel, symbols: PrefixMatcher): Segmenter {
  switch (model.segmentation) {
    case "bpe":
      return bytePairs(model, symbols);
    case "unigram":
      return unigram(model);
    case "char":
      return (text) => characters(text, symbols).map((symbol) => symbol.text);
    case "word":
      return (text) => text.split(new RegExp(`(?!^)(?=${SPACE_SYMBOL})`)); // every word begins with its space
  }
}

/** What text can be cut into: not control tokens, nor bytes. */
function vocabulary(pieces: readonly Piece[]): Map<string, Piece> {
  const ordinary = pieces.filter((p) => p.type !== CONTROL && p.type !== UNKNOWN && p.type !== BYTE);
  return new Map(ordinary.map((piece) => [piece.text, piece]));
}

interface Symbol {
  text: string; // empty once it is merged into the one before
  previous: number;
  next: number; // -1 for none
  readonly frozen: boolean; // a user-defined symbol: never merged
}

function characters(text: string, matcher: PrefixMatcher): Symbol[] {
  const symbols: Symbol[] = [];
  for (let i = 0; i < text.length; ) {
    const symbol = matcher.longest(text, i);
    const part = symbol ?? String.fromCodePoint(text.codePointAt(i)!);
    symbols.push({ text: part, previous: symbols.length - 1, next: symbols.length + 1, frozen: symbol !== undefined });
    i += part.length;
  }
  symbols.at(-1)!.next = -1;
  return symbols;
}

interface Merge {
  readonly left: number;
  readonly right: number;
  readonly score: number;
  readonly size: number; // of both texts; another size now means that one of them has changed
}

/** Sennrich et al. 2016: the best merge first; of equal scores the leftmost. */
function bytePairs(model: SentencePieceModel, matcher: PrefixMatcher): Segmenter {
  const known = vocabulary(model.pieces);
  return (text) => {
    const symbols = characters(text, matcher);
    const agenda = new Agenda();
    const parts = new Map<string, [string, string]>(); // how an unused piece came about
    const propose = (left: number, right: number): void => {
      if (left < 0 || right < 0 || symbols[left]!.frozen || symbols[right]!.frozen) return;
      const merged = symbols[left]!.text + symbols[right]!.text;
      const piece = known.get(merged);
      if (piece === undefined) return;
      agenda.push({ left, right, score: piece.score, size: merged.length });
      if (piece.type === UNUSED) parts.set(merged, [symbols[left]!.text, symbols[right]!.text]);
    };
    for (let i = 1; i < symbols.length; i++) propose(i - 1, i);
    for (let merge = agenda.pop(); merge !== undefined; merge = agenda.pop()) {
      const left = symbols[merge.left]!;
      const right = symbols[merge.right]!;
      if (left.text === "" || right.text === "" || left.text.length + right.text.length !== merge.size) continue;
      left.text += right.text;
      left.next = right.next;
      if (right.next >= 0) symbols[right.next]!.previous = merge.left;
      right.text = "";
      propose(left.previous, merge.left);
      propose(merge.left, left.next);
    }
    const pieces: string[] = [];
    for (let i = 0; i >= 0; i = symbols[i]!.next) resolve(symbols[i]!.text, known, parts, pieces);
    return pieces;
  };
}

/** Unused pieces are only steps of a merge: they fall back into their parts. */
function resolve(text: string, known: Map<string, Piece>, parts: Map<string, [string, string]>, out: string[]): void {
  const inner = known.get(text)?.type === UNUSED ? parts.get(text) : undefined;
  if (inner === undefined) out.push(text);
  else for (const part of inner) resolve(part, known, parts, out);
}

/** A binary heap of merges, the best on top. */
class Agenda {
  private readonly heap: Merge[] = [];

  push(merge: Merge): void {
    let place = this.heap.push(merge) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!isBetter(merge, this.heap[parent]!)) break;
      this.heap[place] = this.heap[parent]!;
      place = parent;
    }
    this.heap[place] = merge;
  }

  pop(): Merge | undefined {
    const top = this.heap[0];
    const last = this.heap.pop();
    if (last === undefined || this.heap.length === 0) return top;
    let place = 0;
    for (let child = 1; child < this.heap.length; child = 2 * place + 1) {
      if (child + 1 < this.heap.length && isBetter(this.heap[child + 1]!, this.heap[child]!)) child++;
      if (!isBetter(this.heap[child]!, last)) break;
      this.heap[place] = this.heap[child]!;
      place = child;
    }
    this.heap[place] = last;
    return top;
  }
}

function isBetter(one: Merge, other: Merge): boolean {
  return one.score > other.score || (one.score === other.score && one.left < other.left);
}

interface Best {
  score: number; // float32, of the best path that ends here
  start: number; // where its last piece starts; -1 for no path
}

const UNKNOWN_PENALTY = 10;

/** Kudo 2018: the path with the largest sum of log-probabilities (Viterbi), in float32 as the library has it. */
function unigram(model: SentencePieceModel): Segmenter {
  const root = buildTrie(vocabulary(model.pieces).values());
  const normal = model.pieces.filter((p) => p.type === NORMAL).map((p) => p.score);
  const unknownScore = Math.fround(normal.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY);
  const highest = normal.reduce((a, b) => Math.max(a, b), 2 ** -126);
  const scoreOf = (piece: Piece): number =>
    piece.type === USER_DEFINED ? Math.fround(encodedLength(piece.text) * highest - 0.1) : piece.score;
  return (text) => {
    const best: Best[] = Array.from({ length: text.length + 1 }, () => ({ score: 0, start: -1 }));
    const offer = (start: number, end: number, score: number): void => {
      const total = Math.fround(score + best[start]!.score);
      if (best[end]!.start < 0 || total > best[end]!.score) best[end] = { score: total, start };
    };
    for (let start = 0; start < text.length; ) {
      const first = text.codePointAt(start)! > 0xffff ? 2 : 1;
      let single = false;
      let node: TrieNode | undefined = root;
      for (let end = start + 1; end <= text.length; end++) {
        node = node.next.get(text.charCodeAt(end - 1));
        if (node === undefined) break;
        if (node.piece === undefined || node.piece.type === UNUSED) continue;
        offer(start, end, scoreOf(node.piece));
        if (end - start === first) single = true;
      }
      if (!single) offer(start, start + first, unknownScore);
      start += first;
    }
    const pieces: string[] = [];
    for (let end = text.length; end > 0; end = best[end]!.start) pieces.push(text.slice(best[end]!.start, end));
    return pieces.reverse();
  };
}

interface TrieNode {
  readonly next: Map<number, TrieNode>; // by UTF-16 unit
  piece?: Piece;
}

function buildTrie(pieces: Iterable<Piece>): TrieNode {
  const root: TrieNode = { next: new Map() };
  for (const piece of pieces) {
    let node = root;
    for (let i = 0; i < piece.text.length; i++) {
      const unit = piece.text.charCodeAt(i);
      let child = node.next.get(unit);
      if (child === undefined) node.next.set(unit, (child = { next: new Map() }));
      node = child;
    }
    node.piece = piece;
  }
  return root;
}
