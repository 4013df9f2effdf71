/**
 * The decoder's memory of every row where every shape is a number. See SPEC.md, "Cache".
 *
 * Letters: B sentences, K beams, R rows of one run, S source length, T target length, H heads, D head size, L layers.
 */

import type { StepCache } from "./step_model.js";
import type { Tensor, TensorData, TensorMemory } from "./tensors.js";

/** What the encoder left for the decoder, for each sentence. */
export interface Sentence {
  readonly cross: readonly Tensor[]; // keys and values by turns, each [1, H, S, D]; 2L of them
  readonly mask: Int32Array; // [S], 1 on real tokens
}

/** R rows that the decoder takes in one run; those behind the last row of the cache are idle copies of it. */
export interface Chunk {
  owners: readonly number[]; // [R] sentence of each row
  readonly cross: readonly Tensor[]; // each [R, H, S, D]
  readonly mask: Tensor; // int32 [R, S]
  layers: readonly Tensor[]; // each [R, H, T, D]; what lies behind a row's length is garbage
  spare: readonly Tensor[]; // as many, for what the next step gives; none where the engine makes its own
}

/** As many chunks as the rows need. */
export class FixedCache implements StepCache<FixedCache> {
  chunks: Chunk[];
  lengths: Int32Array; // used positions, by row

  /** dims: of a layer's keys, [R, H, T, D]. */
  constructor(
    private readonly place: TensorMemory,
    private readonly writesInPlace: boolean,
    private readonly sentences: readonly Sentence[],
    private readonly dims: readonly [number, number, number, number],
    beams: number,
  ) {
    const owners = Array.from({ length: sentences.length * beams }, (_, row) => Math.floor(row / beams));
    this.lengths = new Int32Array(owners.length);
    this.chunks = chunked(owners, dims[0]).map((some) => this.newChunk(some));
  }

  /** Rows of a chunk that are not idle. */
  realRows(chunk: number): number {
    return Math.min(this.dims[0], this.lengths.length - chunk * this.dims[0]);
  }

  /** Takes what a step of a chunk gave. */
  advance(chunk: Chunk, layers: readonly Tensor[]): void {
    if (this.writesInPlace) chunk.spare = chunk.layers;
    else this.free(chunk.layers);
    chunk.layers = layers;
  }

  /** Chunks whose rows all stay are kept; the others are written anew. */
  select(rows: readonly number[]): FixedCache {
    const size = this.dims[0];
    const owners = rows.map((row) => this.chunks[Math.floor(row / size)]!.owners[row % size]!);
    const places = chunked(owners, size);
    const written = places.map((_, place) => {
      const real = rows.slice(place * size, (place + 1) * size);
      return real.every((row, i) => row === place * size + i) ? null : this.gathered(this.chunks[place]!, real);
    });
    for (const chunk of this.chunks.splice(places.length)) this.freeChunk(chunk);
    for (const [place, layers] of written.entries()) {
      if (layers === null) continue;
      this.advance(this.chunks[place]!, layers);
      this.takeSentences(this.chunks[place]!, places[place]!);
    }
    this.lengths = Int32Array.from(rows, (row) => this.lengths[row]!);
    return this;
  }

  release(): void {
    for (const chunk of this.chunks) this.freeChunk(chunk);
    for (const { cross } of this.sentences) this.free(cross);
  }

  private newChunk(owners: readonly number[]): Chunk {
    const { cross, mask } = this.sentences[0]!;
    const chunk = {
      owners: [],
      cross: cross.map(({ type, dims }) => this.place.allocate(type, [this.dims[0], ...dims.slice(1)])),
      mask: this.place.allocate("int32", [this.dims[0], mask.length]),
      layers: this.zeros(),
      spare: this.writesInPlace ? this.zeros() : [],
    };
    this.takeSentences(chunk, owners);
    return chunk;
  }

  /** Gives a chunk the keys, values and masks of the sentences that own its rows. */
  private takeSentences(chunk: Chunk, owners: readonly number[]): void {
    const masks = chunk.mask.data;
    for (const [row, owner] of owners.entries()) {
      if (chunk.owners[row] === owner) continue;
      const { cross, mask } = this.sentences[owner]!;
      put(masks, mask, row * mask.length);
      for (const [i, { data }] of cross.entries()) put(chunk.cross[i]!.data, data, row * data.length);
    }
    chunk.owners = owners;
  }

  /** Layers in which row i continues the row rows[i] of the cache: only its used positions are copied. */
  private gathered(chunk: Chunk, rows: readonly number[]): readonly Tensor[] {
    const [size, heads, room, width] = this.dims;
    const layers = this.writesInPlace ? chunk.spare : this.zeros();
    for (const [i, layer] of layers.entries()) {
      const target = layer.data;
      for (const [row, old] of rows.entries()) {
        const source = this.chunks[Math.floor(old / size)]!.layers[i]!.data;
        for (let head = 0; head < heads; head++) {
          const from = ((old % size) * heads + head) * room * width;
          put(target, source.subarray(from, from + this.lengths[old]! * width), (row * heads + head) * room * width);
        }
      }
    }
    return layers;
  }

  private zeros(): Tensor[] {
    return this.sentences[0]!.cross.map(({ type }) => {
      const tensor = this.place.allocate(type, this.dims);
      (tensor.data as Float32Array).fill(0); // garbage may not be NaN
      return tensor;
    });
  }

  private freeChunk({ cross, mask, layers, spare }: Chunk): void {
    this.free([...cross, mask, ...layers, ...spare]);
  }

  private free(tensors: readonly Tensor[]): void {
    for (const tensor of tensors) this.place.free(tensor);
  }
}

/** In pieces of `size`; the last one is filled up with its last value. */
function chunked(values: readonly number[], size: number): number[][] {
  const count = Math.ceil(values.length / size);
  return Array.from({ length: count }, (_, place) =>
    Array.from({ length: size }, (__, i) => values[Math.min(place * size + i, values.length - 1)]!),
  );
}

function put(data: TensorData, values: TensorData, place: number): void {
  (data as Float32Array).set(values as Float32Array, place); // both are of one type
}
