/** Drawing a token: SPEC.md, "Sampling". Few tokens decide a draw, so no more of them than that are put in order. */

import type { TranslationOptions } from "./options.js";

const MOST_BY_HEAP = 200; // for more, sorting all is faster
const MOST_BY_SORT = 2 ** 21; // ids above it do not fit beside a logit in one number

type Cuts = Pick<TranslationOptions, "temperature" | "top_k" | "top_p">;

/** The token at the fraction u in [0, 1) of the distribution after temperature, then top-k, then top-p. */
export function drawToken(logits: Float32Array, cuts: Cuts, u: number): number {
  const few = cuts.top_k > 0 && cuts.top_k < logits.length;
  return (few ? undefined : drawnAmongAll(logits, cuts, u)) ?? drawnInOrder(logits, cuts, u);
}

/** By the definition: everything that is kept is put in order and summed in that order. */
function drawnInOrder(logits: Float32Array, { temperature, top_k, top_p }: Cuts, u: number): number {
  const kept = top_k > 0 ? Math.min(top_k, logits.length) : logits.length;
  const few = kept <= MOST_BY_HEAP || logits.length > MOST_BY_SORT;
  const ids = few ? firstInOrder(logits, kept) : allInOrder(logits).subarray(0, kept);
  const largest = logits[ids[0]!]! / temperature;
  let sum = 0;
  let mass = new Float64Array(ids.length);
  for (let i = 0; i < ids.length; i++) mass[i] = sum += Math.exp(logits[ids[i]!]! / temperature - largest);
  if (top_p < 1) mass = mass.subarray(0, mass.findIndex((m) => m >= top_p * sum) + 1);
  const wanted = u * (mass.at(-1) ?? 0);
  const place = mass.findIndex((m) => m > wanted);
  return ids[Math.max(0, place)]!; // -1 only if the logits are NaN: the search finds it
}

/**
 * The same token from a sum in any order, which differs from the sum by the definition in its last digits alone.
 * Undefined where these could decide.
 */
function drawnAmongAll(logits: Float32Array, { temperature, top_p }: Cuts, u: number): number | undefined {
  const order = new Descending(logits);
  const first = order.next();
  const largest = logits[first]! / temperature;
  const weight = (id: number) => Math.exp(logits[id]! / temperature - largest);
  let total = 0;
  for (let id = 0; id < logits.length; id++) total += weight(id);
  const slack = logits.length * 2 ** -51; // four times the rounding of two sums of that many terms
  const [least, most] = [total * (1 - slack), total * (1 + slack)];
  const ids = [first];
  const mass = [weight(first)];
  const end = top_p < 1 ? top_p : u; // the fraction of everything that must be walked through
  const reached = (m: number, sum: number) => (top_p < 1 ? m >= end * sum : m > end * sum);
  while (!reached(mass.at(-1)!, least)) {
    if (ids.length === Math.min(MOST_BY_HEAP, logits.length)) return undefined;
    ids.push(order.next());
    mass.push(mass.at(-1)! + weight(ids.at(-1)!));
  }
  if (!reached(mass.at(-1)!, most)) return undefined;
  if (top_p === 1) return ids.at(-1);
  const wanted = u * mass.at(-1)!;
  return ids[mass.findIndex((m) => m > wanted)];
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
