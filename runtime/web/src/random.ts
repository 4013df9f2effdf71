/**
 * The counter-based generator behind sampling: the same numbers in every language and in every batch.
 *
 * Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". See SPEC.md, "Sampling".
 * All arithmetic is on 32-bit words, which JavaScript does fast; BigInt would not be.
 */

export type Words = readonly [number, number]; // low and high 32 bits of a 64-bit number
export type Block = readonly [number, number, number, number];

/** Ten rounds; all words are unsigned and of 32 bits. */
export function philox4x32(counter: Block, key: Words): Block {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const high0 = mulHigh(0xd2511f53, c0);
    const low0 = Math.imul(0xd2511f53, c0);
    const high2 = mulHigh(0xcd9e8d57, c2);
    const low2 = Math.imul(0xcd9e8d57, c2);
    [c0, c1, c2, c3] = [(high2 ^ c1 ^ k0) >>> 0, low2 >>> 0, (high0 ^ c3 ^ k1) >>> 0, low0 >>> 0];
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** What tells the draws of a step from all others. */
export function drawBlock(seed: Words, step: number, sample: number, stream: Words): Block {
  return philox4x32([step, sample, stream[0], stream[1]], seed);
}

/** For one id after another, a time above 0 of the exponential distribution of rate 1. */
export class ExponentialTimes {
  private held = -1; // four ids share a block of words
  private words: Block = [0, 0, 0, 0];

  constructor(private readonly block: Block) {}

  of(id: number): number {
    if (id >>> 2 !== this.held) {
      const [a0, a1, a2, a3] = this.block;
      this.held = id >>> 2;
      this.words = philox4x32([this.held, 0, a2, a3], [a0, a1]);
    }
    return -Math.log((this.words[id & 3]! + 0.5) * 2 ** -32);
  }
}

/** FNV-1a, 64 bits, over the ids, each as four bytes, the lowest first: what tells one sentence from another. */
export function fnv1a64(ids: readonly number[]): Words {
  let low = 0x84222325;
  let high = 0xcbf29ce4;
  for (const id of ids) {
    for (let shift = 0; shift < 32; shift += 8) {
      low = (low ^ ((id >>> shift) & 0xff)) >>> 0;
      // The prime is 2^40 + 0x1b3, and 0x1b3 times a word fits in a float64.
      const product = low * 0x1b3;
      high = (high * 0x1b3 + Math.floor(product / 2 ** 32) + low * 2 ** 8) % 2 ** 32;
      low = product % 2 ** 32;
    }
  }
  return [low, high];
}

export function seedWords(seed: number | bigint): Words {
  const whole = BigInt(seed);
  return [Number(whole & 0xffffffffn), Number(whole >> 32n)];
}

/** The high word of the product of two unsigned words, from 16-bit halves. */
function mulHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const first = aHigh * bLow + ((aLow * bLow) >>> 16); // below 2^32
  const second = aLow * bHigh + (first & 0xffff); // below 2^32
  return aHigh * bHigh + (first >>> 16) + (second >>> 16);
}
