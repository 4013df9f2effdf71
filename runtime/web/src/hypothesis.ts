/** What the search knows of one sentence: its live beams, its finished hypotheses, and when it is done. */

import { lengthPenalty, type LengthPenalty } from "./length_penalty.js";
import type { TranslationOptions } from "./options.js";
import type { Attention, Request, Target } from "./step_model.js";

export type FinishReason = "eos" | "length" | "cancelled";

/** One hypothesis as ids. */
export interface Decoded {
  readonly ids: readonly number[]; // prefix and generated tokens, without `eos`
  readonly score: number; // after the length penalty
  readonly token_scores: readonly number[]; // log-probability of each id (0 for a hard prefix), then of `eos` if reached
  readonly finish_reason: FinishReason;
  /** Where it was asked for: for each of `token_scores` what it looked at, [A, S] with the padding of a batch. */
  readonly attention?: readonly Float32Array[];
}

/** A candidate of a step: which beam goes on with which token. */
export interface Candidate {
  readonly beam: number;
  readonly token: number;
  readonly logProb: number;
  readonly total: number; // sum of log-probabilities with this token
}

/** The newest token of a beam, linked to what came before. The root is what the decoder read before a hypothesis. */
class Node {
  constructor(
    readonly parent: Node | null,
    readonly token: number,
    readonly logProb: number,
    readonly total: number, // sum of log-probabilities in float64, in step order
    readonly length: number, // generated tokens; a hard prefix does not count
    readonly attention: Attention = null, // of the step that gave the token, [A, S]
  ) {}

  /** From the first token to this one, without the root. */
  path(): Node[] {
    const nodes: Node[] = [];
    for (let node: Node = this; node.parent !== null; node = node.parent) nodes.push(node);
    return nodes.reverse();
  }
}

interface Finished {
  readonly score: number;
  readonly node: Node;
}

/** The beams of one sentence. `advance` takes the ranked candidates of one step. */
export class SentenceSearch {
  done = false;
  sums: number[]; // of every row, K of them; -Infinity where no beam lives
  readonly limit: number;
  private readonly forced: readonly number[]; // given, not scored
  private readonly penalty: LengthPenalty;
  private steps = 0;
  private live: Node[];
  private finished: Finished[] = []; // best first, at most beam_size
  private cut: FinishReason = "length";

  constructor(
    readonly request: Request,
    private readonly options: TranslationOptions,
    private readonly target: Target,
  ) {
    this.forced = options.prefix_strength === 1 ? request.prefix : [];
    this.limit = lengthLimit(request.source.length, this.forced.length, options, target);
    this.penalty = lengthPenalty(options);
    this.live = [new Node(null, target.start_id, 0, 0, 0)];
    this.sums = this.padded([0]);
  }

  /** How many tokens every live beam has, the hard prefix not counted. */
  get generated(): number {
    return this.live[0]!.length;
  }

  /** The newest token of every row, K of them; rows without a live beam repeat the first. */
  tokens(): number[] {
    return Array.from({ length: this.options.beam_size }, (_, k) => (this.live[k] ?? this.live[0]!).token);
  }

  /** Prefix and generated tokens of a beam; empty for a row that holds none. */
  history(beam: number): number[] {
    return this.live[beam]?.path().map((node) => node.token) ?? [];
  }

  /**
   * Takes the 2K best candidates of the step, best first, and what it looked at, [K, A, S]. Returns the parent beam of each
   * new row.
   */
  advance(candidates: readonly Candidate[], attention: Attention = null): number[] {
    const beams = this.options.beam_size;
    const before = this.target.prefix_ids;
    const forced = before[this.steps] ?? this.forced[this.steps - before.length];
    if (forced !== undefined) {
      const root = this.steps < before.length;
      this.live = [new Node(root ? null : this.live[0]!, forced, 0, 0, 0, this.seen(attention, 0))];
      this.sums = this.padded([0]);
      this.steps++;
      return new Array<number>(beams).fill(0);
    }
    this.steps++;
    const parents: number[] = [];
    const nodes: Node[] = [];
    for (const [rank, { beam, token, logProb, total }] of candidates.entries()) {
      if (total === -Infinity) break;
      const parent = this.live[beam]!;
      const node = new Node(parent, token, logProb, total, parent.length + 1, this.seen(attention, beam));
      if (token === this.target.eos_id) {
        if (rank < beams) this.finish(node);
      } else if (nodes.length < beams) {
        parents.push(beam);
        nodes.push(node);
      }
    }
    this.live = nodes;
    this.sums = this.padded(nodes.map((node) => node.total));
    this.done = nodes.length === 0 || nodes[0]!.length >= this.limit || this.nothingBetterCanFollow();
    return Array.from({ length: beams }, (_, k) => parents[k] ?? parents[0] ?? 0);
  }

  cancel(): void {
    if (this.done) return;
    this.done = true;
    this.cut = "cancelled";
  }

  /** Ids and sum of log-probabilities of the best live beam, or of the best finished hypothesis. */
  bestSoFar(): [number[], number] {
    const ended = this.done ? this.finished[0]?.node : undefined;
    const node = ended ?? this.live[0]!;
    const tokens = node.path().map((n) => n.token);
    return [ended ? tokens.slice(0, -1) : tokens, node.total];
  }

  /** Finished hypotheses by score; then, where they are too few, the live beams that were cut. */
  result(): Decoded[] {
    const finished = this.finished.map(({ score, node }) => decoded(node, score, "eos"));
    const cut = this.live.map((node) => decoded(node, this.score(node), this.cut));
    const all = [...finished, ...cut.sort((a, b) => b.score - a.score)];
    return all.slice(0, this.options.sampling ? 1 : this.options.n_best);
  }

  /** What a beam looked at. */
  private seen(attention: Attention, beam: number): Attention {
    if (attention === null) return null;
    const width = attention.length / this.options.beam_size;
    return attention.slice(beam * width, (beam + 1) * width);
  }

  private finish(node: Node): void {
    this.finished.push({ score: this.score(node), node });
    this.finished.sort((a, b) => b.score - a.score); // stable: of equals the earlier stays first
    this.finished.splice(this.options.beam_size);
  }

  private score(node: Node): number {
    return node.length > 0 ? this.penalty(node.total, node.length) : 0; // 0: cancelled in its prefix
  }

  /** True when no live beam can beat the worst kept hypothesis, however it goes on. */
  private nothingBetterCanFollow(): boolean {
    const beams = this.options.beam_size;
    if (this.finished.length < beams) return false;
    if (beams === 1 || this.options.early_stopping) return true;
    const { total, length } = this.live[0]!;
    // No later log-probability is positive, and a penalty is monotone in the length: one of the ends is the bound.
    const bound = Math.max(this.penalty(total, length + 1), this.penalty(total, this.limit));
    return bound <= this.finished.at(-1)!.score;
  }

  private padded(totals: number[]): number[] {
    return Array.from({ length: this.options.beam_size }, (_, k) => totals[k] ?? -Infinity);
  }
}

/** The most tokens that may be generated for a source of that many ids; below 1 where a prefix leaves no room. */
export function lengthLimit(source: number, forced: number, options: TranslationOptions, target: Target): number {
  let limit = target.max_length - target.prefix_ids.length - forced;
  if (options.max_length !== null) limit = Math.min(limit, options.max_length);
  if (options.max_length_ratio !== null) {
    const byRatio = Math.min(options.max_length_ratio * source, target.max_length); // a ratio may be infinite
    limit = Math.min(limit, Math.floor(byRatio) + options.max_length_extra);
  }
  return limit;
}

function decoded(node: Node, score: number, finish_reason: FinishReason): Decoded {
  const path = node.path();
  const ids = path.map((n) => n.token);
  const token_scores = path.map((n) => n.logProb);
  const seen = path.flatMap((n) => (n.attention === null ? [] : [n.attention]));
  const attention = seen.length > 0 ? { attention: seen } : {};
  return { ids: finish_reason === "eos" ? ids.slice(0, -1) : ids, score, token_scores, finish_reason, ...attention };
}
