/**
 * JSON read strictly: no key twice, no number beyond float64, whole numbers beyond 2^53 as BigInt, bounded depth.
 *
 * JSON.parse would drop the first of two equal keys and round large seeds.
 */

import { BundleError } from "./errors.js";

const MAX_DEPTH = 64;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const SPACE = /[ \t\n\r]*/y;
// A string without what JSON forbids in one: control characters and lone backslashes.
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORDS: Record<string, boolean | null> = { true: true, false: false, null: null };

/** `origin` names the file in errors. Throws BundleError. */
export function parseJson(text: string, origin: string): unknown {
  return new Reader(text, origin).document();
}

class Reader {
  private place = 0;

  constructor(
    private readonly text: string,
    private readonly origin: string,
  ) {}

  document(): unknown {
    const value = this.value(0);
    this.match(SPACE);
    if (this.place < this.text.length) throw this.problem("something follows its end");
    return value;
  }

  private value(depth: number): unknown {
    if (depth > MAX_DEPTH) throw this.problem("nested too deep");
    this.match(SPACE);
    switch (this.text[this.place]) {
      case "{":
        return this.object(depth);
      case "[":
        return this.array(depth);
      case '"':
        return this.string();
      default:
        return this.scalar();
    }
  }

  private object(depth: number): Record<string, unknown> {
    const entries = new Map<string, unknown>();
    this.place++;
    if (this.takes("}")) return {};
    do {
      this.match(SPACE);
      const key = this.string();
      if (entries.has(key)) throw this.problem(`key ${JSON.stringify(key.slice(0, 60))} appears twice in one object`);
      if (!this.takes(":")) throw this.problem("a colon is missing");
      entries.set(key, this.value(depth + 1));
    } while (this.takes(","));
    if (!this.takes("}")) throw this.problem("an object does not end");
    return Object.fromEntries(entries);
  }

  private array(depth: number): unknown[] {
    const items: unknown[] = [];
    this.place++;
    if (this.takes("]")) return items;
    do items.push(this.value(depth + 1));
    while (this.takes(","));
    if (!this.takes("]")) throw this.problem("a list does not end");
    return items;
  }

  private string(): string {
    const written = this.match(STRING);
    if (written === undefined) throw this.problem("a string is broken");
    return JSON.parse(written[0]) as string;
  }

  private scalar(): unknown {
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.place)) {
        this.place += word.length;
        return value;
      }
    }
    const written = this.match(NUMBER);
    if (written === undefined) throw this.problem("a value is missing");
    const [digits, fraction, exponent] = written;
    const value = Number(digits);
    if (!Number.isFinite(value)) throw this.problem(`${digits.slice(0, 60)} is beyond the range of float64`);
    const whole = fraction === undefined && exponent === undefined;
    return whole && !Number.isSafeInteger(value) ? BigInt(digits) : value;
  }

  private takes(character: string): boolean {
    this.match(SPACE);
    if (this.text[this.place] !== character) return false;
    this.place++;
    return true;
  }

  private match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text);
    if (found === null) return undefined;
    this.place = pattern.lastIndex;
    return found;
  }

  private problem(what: string): BundleError {
    return new BundleError(`${this.origin}: not JSON: ${what} (character ${this.place + 1})`);
  }
}
