/** UTF-8 by hand: SentencePiece has its own view of broken bytes, and not every engine has TextDecoder. */

/** The bytes of a text without lone surrogates. */
export function encodeUtf8(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length * 3);
  let size = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.codePointAt(i)!;
    if (code < 0x80) {
      bytes[size++] = code;
      continue;
    }
    if (code < 0x800) {
      bytes[size++] = 0xc0 | (code >> 6);
    } else {
      if (code < 0x10000) {
        bytes[size++] = 0xe0 | (code >> 12);
      } else {
        i++; // two units of UTF-16
        bytes[size++] = 0xf0 | (code >> 18);
        bytes[size++] = 0x80 | ((code >> 12) & 0x3f);
      }
      bytes[size++] = 0x80 | ((code >> 6) & 0x3f);
    }
    bytes[size++] = 0x80 | (code & 0x3f);
  }
  return bytes.subarray(0, size);
}

/** How many bytes the character that begins with this byte has, by its first byte alone. */
export function characterLength(first: number): number {
  return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/** Length of the valid character at `start`, or 0 where the bytes are none. */
export function validLength(bytes: Uint8Array, start: number, end: number = bytes.length): number {
  const first = bytes[start]!;
  if (first < 0x80) return 1;
  const length = characterLength(first);
  if (first < 0xc2 || first > 0xf4 || start + length > end) return 0;
  for (let i = start + 1; i < start + length; i++) if ((bytes[i]! & 0xc0) !== 0x80) return 0;
  const code = codePoint(bytes, start, length);
  const smallest = length === 2 ? 0x80 : length === 3 ? 0x800 : 0x10000;
  return code >= smallest && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? length : 0;
}

/** Text of the bytes; every byte that is not part of a character becomes U+FFFD. */
export function decodeUtf8(bytes: Uint8Array, start = 0, end: number = bytes.length): string {
  let text = "";
  const codes: number[] = [];
  for (let i = start; i < end; ) {
    const length = validLength(bytes, i, end);
    codes.push(length === 0 ? 0xfffd : codePoint(bytes, i, length));
    i += length || 1;
    if (codes.length === 1024) text += String.fromCodePoint(...codes.splice(0));
  }
  return text + String.fromCodePoint(...codes);
}

/** Place of the first byte that is not part of a character, or -1. */
export function firstInvalid(bytes: Uint8Array): number {
  for (let i = 0; i < bytes.length; ) {
    const length = validLength(bytes, i);
    if (length === 0) return i;
    i += length;
  }
  return -1;
}

/** By hand, because not every engine knows isWellFormed. */
export function hasLoneSurrogate(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.codePointAt(i)!;
    if (code >= 0xd800 && code <= 0xdfff) return true;
    if (code > 0xffff) i++;
  }
  return false;
}

function codePoint(bytes: Uint8Array, start: number, length: number): number {
  let code = length === 1 ? bytes[start]! : bytes[start]! & (0xff >> (length + 1));
  for (let i = start + 1; i < start + length; i++) code = (code << 6) | (bytes[i]! & 0x3f);
  return code;
}
