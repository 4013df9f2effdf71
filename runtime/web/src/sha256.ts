/** SHA-256 (FIPS 180-4), by the platform where it can; it cannot on pages without HTTPS and in React Native. */

export async function sha256(data: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", data as Uint8Array<ArrayBuffer>)) : digestOf(data);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The first 32 bits of the fractional parts of the square and cube roots of the first primes.
const PRIMES = firstPrimes(64);
const START = PRIMES.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const ROUNDS = Uint32Array.from(PRIMES, (p) => fraction(Math.cbrt(p)));

/** The digest in plain JavaScript. */
export function digestOf(data: Uint8Array): Uint8Array {
  const state = Uint32Array.from(START);
  const whole = data.length - (data.length % 64);
  for (let i = 0; i < whole; i += 64) compress(state, new DataView(data.buffer, data.byteOffset + i, 64));
  const rest = data.length - whole;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(data.subarray(whole));
  tail[rest] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(data.length / 2 ** 29));
  view.setUint32(tail.length - 4, (data.length * 8) >>> 0);
  for (let i = 0; i < tail.length; i += 64) compress(state, new DataView(tail.buffer, i, 64));
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

function compress(state: Uint32Array, block: DataView): void {
  const w = new Uint32Array(64);
  for (let i = 0; i < 16; i++) w[i] = block.getUint32(4 * i);
  for (let i = 16; i < 64; i++) {
    const [early, late] = [w[i - 15]!, w[i - 2]!];
    const s0 = turn(early, 7) ^ turn(early, 18) ^ (early >>> 3);
    const s1 = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10);
    w[i] = w[i - 16]! + s0 + w[i - 7]! + s1;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
    const first = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i]! + w[i]!) | 0;
    const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
    const second = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] = state[i]! + word));
}

function turn(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits));
}

function firstPrimes(count: number): number[] {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
  return primes;
}

function fraction(root: number): number {
  return Math.floor((root % 1) * 2 ** 32);
}
