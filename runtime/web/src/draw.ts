/** Drawing a token: SPEC.md, "Sampling". Few tokens decide a cut, so no more of them than that are put in order. */

import type { TranslationOptions } from "./options.js";
import { type Block, ExponentialTimes } from "./random.js";

const MOST_BY_HEAP = 200; // for more, sorting all is faster
const MOST_BY_SORT = 2 ** 21; // ids above it do not fit beside a logit in one number

type Cuts = Pick<TranslationOptions, "temperature" | "top_k" | "top_p">;

/** A token of the distribution after temperature, then top-k, then top-p: the first in a race of random times. */
export function drawToken(logits: Float32Array, { temperature, top_k, top_p }: Cuts, block: Block): number {
  let largest = -Infinity;
  for (const logit of logits) largest = Math.max(largest, logit);
  const weight = (id: number) => Math.exp((logits[id]! - largest) / temperature);
  const times = new ExponentialTimes(block);
  let drawn = 0; // it stays 0 only if the logits are NaN: the search finds it
  let earliest = Infinity;
  const enter = (id: number) => {
    const time = times.of(id) / weight(id);
    if (time < earliest) [earliest, drawn] = [time, id];
  };
  const cutting = top_k > 0 && top_k < logits.length;
  if (!cutting && top_p === 1) for (let id = 0; id < logits.length; id++) enter(id);
  else keptIds(logits, cutting ? top_k : 0, top_p, weight).sort().forEach(enter);
  return drawn;
}

type Weight = (id: number) => number;

/** The ids that top-k and then top-p leave. */
function keptIds(logits: Float32Array, top_k: number, top_p: number, weight: Weight): Int32Array {
  return (top_k ? undefined : keptOfAll(logits, top_p, weight)) ?? keptInOrder(logits, top_k, top_p, weight);
}

/** By the definition: everything that top-k keeps is put in order and summed in that order. */
function keptInOrder(logits: Float32Array, top_k: number, top_p: number, weight: Weight): Int32Array {
  const kept = top_k || logits.length;
  const few = kept <= MOST_BY_HEAP || logits.length > MOST_BY_SORT;
  const ids = few ? firstInOrder(logits, kept) : allInOrder(logits).subarray(0, kept);
  if (top_p === 1) return ids;
  let sum = 0;
  const mass = Float64Array.from(ids, (id) => (sum += weight(id)));
  return ids.subarray(0, mass.findIndex((m) => m >= top_p * sum) + 1);
}

/**
 * The same ids for top-p alone, from a sum in any order, which differs from the sum by the definition in its last digits
 * alone. Undefined where these could decide, or where many ids are kept.
 */
function keptOfAll(logits: Float32Array, top_p: number, weight: Weight): Int32Array | undefined {
  let total = 0;
  for (let id = 0; id < logits.length; id++) total += weight(id);
  const slack = logits.length * 2 ** -51; // four times the rounding of two sums of that many terms
  const order = new Descending(logits);
  const ids = [order.next()];
  let mass = weight(ids[0]!);
  while (!(mass >= top_p * total * (1 - slack))) {
    if (ids.length === Math.min(MOST_BY_HEAP, logits.length)) return undefined;
    ids.push(order.next());
    mass += weight(ids.at(-1)!);
  }
  return mass >= top_p * total * (1 + slack) ? Int32Array.from(ids) : undefined;
}

function firstInOrder(logits: Float32Array, count: number): Int32Array {
  const order = new Descending(logits);
  const ids = new Int32Array(count);
  for (let i = 0; i < count; i++) ids[i] = order.next();
  return ids;
}

/** By the engine's own sort of numbers, each of them a logit's place among all float32 and its id. */
function allInOrder(logits: Float32Array): Int32Array {
  const bits = new Int32Array(logits.map((logit) => logit + 0).buffer); // + 0: -0 becomes 0
  const keys = new Float64Array(logits.length);
  for (let id = 0; id < keys.length; id++) {
    const rising = bits[id]! < 0 ? ~bits[id]! >>> 0 : bits[id]! + 2 ** 31;
    keys[id] = (2 ** 32 - 1 - rising) * MOST_BY_SORT + id; // whole numbers below 2^53
  }
  keys.sort();
  const ids = new Int32Array(keys.length);
  for (let place = 0; place < ids.length; place++) ids[place] = keys[place]! % MOST_BY_SORT;
  return ids;
}

/** The ids of a row, the largest logit first, of equal ones the lower id: a heap, which sorts what is taken from it. */
class Descending {
  private readonly heap: Int32Array;
  private size: number;

  constructor(private readonly logits: Float32Array) {
    this.size = logits.length;
    this.heap = new Int32Array(logits.length);
    for (let id = 0; id < this.size; id++) this.heap[id] = id;
    for (let place = (this.size >> 1) - 1; place >= 0; place--) this.sink(place);
  }

  next(): number {
    const { heap } = this;
    const best = heap[0]!;
    heap[0] = heap[--this.size]!;
    this.sink(0);
    return best;
  }

  private sink(start: number): void {
    const { heap, size } = this;
    const moving = heap[start]!;
    let place = start;
    for (let child = 2 * place + 1; child < size; child = 2 * place + 1) {
      if (child + 1 < size && this.before(heap[child + 1]!, heap[child]!)) child++;
      if (!this.before(heap[child]!, moving)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = moving;
  }

  private before(a: number, b: number): boolean {
    const [one, other] = [this.logits[a]!, this.logits[b]!];
    return one > other || (one === other && a < b);
  }
}
