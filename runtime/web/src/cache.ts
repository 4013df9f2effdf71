/**
 * The decoder's memory of every row, in the two forms whose tensors grow. See SPEC.md, "Cache".
 *
 * Letters: B sentences, K beams, R = B*K rows, S source length, P used length, C capacity, H heads, D head size, L layers.
 */

import type { StepCache } from "./step_model.js";
import type { Tensor, TensorData, TensorMemory } from "./tensors.js";

/** What the encoder left for the decoder, once per sentence. */
export class Memory {
  constructor(
    readonly tensors: TensorMemory, // where they live, and the layers of the cache
    readonly cross: readonly Tensor[], // keys and values by turns, each [B, H, S, D]; 2L of them
    readonly mask: Tensor, // int32 [B, S], 1 on real tokens
  ) {}

  /** Only these sentences, in this order. */
  select(sentences: readonly number[]): Memory {
    if (isInOrder(sentences, this.mask.dims[0]!)) return this;
    const selected = (tensor: Tensor) => moved(this.tensors, tensor, sentences);
    return new Memory(this.tensors, this.cross.map(selected), selected(this.mask));
  }

  release(): void {
    for (const tensor of [...this.cross, this.mask]) this.tensors.free(tensor);
  }
}

/**
 * Tensors of a capacity, written by the graph where each row ends; what lies behind a row's length is garbage.
 *
 * A row need not lie at its own index: when beams change places, only a beam that has two heirs is copied, into the
 * place of one that has none. Both descend from one beam of some steps ago: what that had is not copied again.
 */
export class InPlaceCache implements StepCache<InPlaceCache> {
  private constructor(
    public memory: Memory,
    public layers: readonly Tensor[], // by place, each [R, H, C, D]; keys and values by turns, 2L of them
    public lengths: Int32Array, // [R] used length, by place
    public places: readonly number[], // [R] where each row lies: among the K places of its sentence
    public common: Int32Array, // [R, K] first tokens that a place shares with each other of its sentence
  ) {}

  static empty(
    memory: Memory,
    dims: readonly [rows: number, heads: number, capacity: number, headSize: number],
    layers: number,
  ): InPlaceCache {
    const lengths = new Int32Array(dims[0]);
    const common = new Int32Array((dims[0] * dims[0]) / memory.mask.dims[0]!);
    return new InPlaceCache(memory, allocated(memory, dims, layers), lengths, [...lengths.keys()], common);
  }

  get capacity(): number {
    return this.layers[0]!.dims[2]!;
  }

  /** The most tokens that a row holds. */
  get used(): number {
    return this.lengths.reduce((a, b) => Math.max(a, b), 0);
  }

  private get beams(): number {
    return this.common.length / this.lengths.length;
  }

  /** If one more token does not fit, `more` will, or as many as `limit` allows. */
  makeRoom(more: number, limit: number): void {
    if (this.used < this.capacity) return;
    const capacity = Math.min(this.capacity + more, limit);
    this.layers = this.layers.map((layer) => widened(this.memory.tensors, layer, capacity));
  }

  /** Takes what a step gave: one more token in every row. Memory that it does not use is freed. */
  advance(layers: readonly Tensor[]): void {
    if (layers !== this.layers) for (const layer of this.layers) this.memory.tensors.free(layer);
    this.layers = layers;
    this.lengths = this.lengths.map((length) => length + 1);
  }

  /** Copies as few rows as it can, and of them only what is used. */
  select(rows: readonly number[]): InPlaceCache {
    const before = this.lengths.length;
    if (isInOrder(rows, before)) return this;
    const { beams } = this;
    const sources = rows.map((row) => this.places[row]!);
    const [places, copied] = fewestCopies(sources, beams);
    const common = this.commonOfHeirs(sources, places);
    this.copy(copied.map((row) => sources[row]!), copied.map((row) => places[row]!));
    [this.common, this.places] = [common, places];
    this.memory = this.memory.select(sentencesOf(rows, beams));
    if (rows.length < before) {
      this.layers = this.layers.map((layer) => this.memory.tensors.front(layer, rows.length));
      this.lengths = this.lengths.slice(0, rows.length);
    }
    return this;
  }

  release(): void {
    for (const layer of this.layers) this.memory.tensors.free(layer);
    this.memory.release();
  }

  private copy(sources: readonly number[], targets: readonly number[]): void {
    if (targets.some((target) => sources.includes(target))) { // whole sentences change places
      for (const layer of this.layers) moveRows(layer, sources, targets);
    } else if (targets.length > 0) {
      for (const layer of this.layers) this.copyTokens(layer, sources, targets);
    }
    const lengths = sources.map((source) => this.lengths[source]!);
    for (const [i, target] of targets.entries()) this.lengths[target] = lengths[i]!;
  }

  /** What is used of the sources, without what the targets share already. */
  private copyTokens({ data, dims }: Tensor, sources: readonly number[], targets: readonly number[]): void {
    const [, heads, capacity, size] = dims as [number, number, number, number];
    for (const [i, source] of sources.entries()) {
      const begin = this.shared(source, targets[i]!);
      const end = this.lengths[source]!;
      for (let head = 0; head < heads; head++) {
        const from = (source * heads + head) * capacity;
        const to = (targets[i]! * heads + head) * capacity;
        data.copyWithin((to + begin) * size, (from + begin) * size, (from + end) * size);
      }
    }
  }

  /** First tokens that two places share; none if they belong to two sentences. */
  private shared(one: number, other: number): number {
    const { beams } = this;
    if (Math.floor(one / beams) !== Math.floor(other / beams)) return 0;
    return this.common[one * beams + (other % beams)]!;
  }

  /**
   * sources, places [R']: which place each new row continues, and where it lies. Returns the new `common`.
   *
   * Two heirs of one place share all of it, others what those share that they continue.
   */
  private commonOfHeirs(sources: readonly number[], places: readonly number[]): Int32Array {
    const { beams } = this;
    const heirs = new Int32Array(places.length * beams);
    for (const [row, source] of sources.entries()) {
      for (let other = row - (row % beams), end = other + beams; other < end; other++) {
        const twins = source === sources[other];
        const shared = twins ? this.lengths[source]! : this.shared(source, sources[other]!);
        heirs[places[row]! * beams + (places[other]! % beams)] = shared;
      }
    }
    return heirs;
  }
}

/** What graphs of standard operators use: each step returns tensors that are one token longer. */
export class GrowingCache implements StepCache<GrowingCache> {
  private constructor(
    public memory: Memory,
    public layers: readonly Tensor[], // each [R, H, P, D]; keys and values by turns, 2L of them
    public lengths: Int32Array, // [R], all equal
  ) {}

  static empty(memory: Memory, [rows, heads, size]: readonly [number, number, number], layers: number): GrowingCache {
    return new GrowingCache(memory, allocated(memory, [rows, heads, 0, size], layers), new Int32Array(rows));
  }

  /** Each row lies at its own index. */
  get places(): readonly number[] {
    return [...this.lengths.keys()];
  }

  /** Takes what a step gave: one more token in every row. */
  advance(layers: readonly Tensor[]): void {
    for (const layer of this.layers) this.memory.tensors.free(layer);
    this.layers = layers;
    this.lengths = this.lengths.map((length) => length + 1);
  }

  select(rows: readonly number[]): GrowingCache {
    if (isInOrder(rows, this.lengths.length)) return this;
    const beams = this.lengths.length / this.memory.mask.dims[0]!;
    this.layers = this.layers.map((layer) => moved(this.memory.tensors, layer, rows));
    this.lengths = this.lengths.slice(0, rows.length);
    this.memory = this.memory.select(sentencesOf(rows, beams));
    return this;
  }

  release(): void {
    for (const layer of this.layers) this.memory.tensors.free(layer);
    this.memory.release();
  }
}

/**
 * sources [R']: the place that each new row continues. Returns the places of the new rows, and who must be copied.
 *
 * A row stays where it is if that is among the places of its sentence and no earlier row has it.
 */
function fewestCopies(sources: readonly number[], beams: number): [places: number[], copied: number[]] {
  const taken = new Set<number>();
  const copied: number[] = [];
  for (const [row, place] of sources.entries()) {
    if (Math.floor(place / beams) === Math.floor(row / beams) && !taken.has(place)) taken.add(place);
    else copied.push(row);
  }
  const places = [...sources];
  let free = 0; // a sentence has as many free places as rows to copy, and both are in its order
  for (const row of copied) {
    while (taken.has(free)) free++;
    places[row] = free++;
  }
  return [places, copied];
}

/** The old place of each new sentence. */
function sentencesOf(rows: readonly number[], beams: number): number[] {
  return rows.filter((_, row) => row % beams === 0).map((row) => Math.floor(row / beams));
}

function allocated(memory: Memory, dims: readonly number[], layers: number): Tensor[] {
  const { type } = memory.cross[0]!;
  return Array.from({ length: 2 * layers }, () => memory.tensors.allocate(type, dims));
}

/** The content of a tensor [R, H, C, D] in one of a larger capacity. */
function widened(tensors: TensorMemory, tensor: Tensor, capacity: number): Tensor {
  const [rows, heads, old, size] = tensor.dims as [number, number, number, number];
  const wide = tensors.allocate(tensor.type, [rows, heads, capacity, size]);
  const [from, to] = [tensor.data, wide.data];
  for (let i = 0; i < rows * heads; i++) {
    put(to, from.subarray(i * old * size, (i + 1) * old * size), i * capacity * size);
  }
  tensors.free(tensor);
  return wide;
}

/** tensor[order], written into the front of the same memory; only what changes its place is copied. */
function moved(tensors: TensorMemory, tensor: Tensor, order: readonly number[]): Tensor {
  const targets = [...order.keys()].filter((place) => order[place] !== place);
  moveRows(tensor, targets.map((place) => order[place]!), targets);
  return order.length === tensor.dims[0] ? tensor : tensors.front(tensor, order.length);
}

/** tensor[targets] = tensor[sources]; a source may be a target too. */
function moveRows({ data, dims }: Tensor, sources: readonly number[], targets: readonly number[]): void {
  const stride = data.length / dims[0]!;
  const rows = sources.map((source) => data.slice(source * stride, (source + 1) * stride));
  for (const [i, row] of rows.entries()) put(data, row, targets[i]! * stride);
}

function put(data: TensorData, values: TensorData, place: number): void {
  (data as Float32Array).set(values as Float32Array, place); // both come from one tensor, so from one type
}

/** Whether they are 0, 1, ... count - 1, so that nothing moves. */
function isInOrder(indices: readonly number[], count: number): boolean {
  return indices.length === count && indices.every((index, place) => index === place);
}
