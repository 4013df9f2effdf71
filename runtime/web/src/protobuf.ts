/** The protobuf wire format (https://protobuf.dev/programming-guides/encoding), read field by field. */

import { BundleError } from "./errors.js";

export const VARINT = 0;
export const FIXED64 = 1;
export const BYTES = 2;
export const FIXED32 = 5;

export interface Field {
  readonly number: number;
  readonly wire: number;
  readonly start: number; // where its content begins
  readonly end: number; // where it ends, and the next field begins
  readonly value: number; // of a VARINT, its low 53 bits at most
}

/** Reads one field; `what` names the kind of file in errors. Throws BundleError. */
export function readField(bytes: Uint8Array, position: number, end: number, what: string): Field {
  const [tag, next] = readVarint(bytes, position, end, what);
  const number = Math.floor(tag / 8);
  const wire = tag % 8;
  // Readers cut a longer tag in different ways.
  if (number === 0 || tag >= 2 ** 32) throw new BundleError(`not ${what}: impossible field at byte ${next}`);
  let start = next;
  let stop: number;
  let value = 0;
  if (wire === BYTES) {
    const [length, begin] = readVarint(bytes, next, end, what);
    start = begin;
    stop = begin + length;
  } else if (wire === VARINT) {
    [value, stop] = readVarint(bytes, next, end, what);
  } else if (wire === FIXED64 || wire === FIXED32) {
    stop = next + (wire === FIXED64 ? 8 : 4);
  } else {
    throw new BundleError(`not ${what}: unknown wire type ${wire} at byte ${next}`);
  }
  if (stop > end) throw new BundleError(`not ${what}: cut short at byte ${next}`);
  return { number, wire, start, end: stop, value };
}

/** All fields between two positions. */
export function* readFields(bytes: Uint8Array, start: number, end: number, what: string): Generator<Field> {
  while (start < end) {
    const field = readField(bytes, start, end, what);
    start = field.end;
    yield field;
  }
}

function readVarint(bytes: Uint8Array, position: number, end: number, what: string): [number, number] {
  let value = 0;
  for (let shift = 0; position < end && shift < 70; shift += 7) {
    const byte = bytes[position++]!;
    value += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return [value, position];
  }
  throw new BundleError(`not ${what}: broken number at byte ${position}`);
}
