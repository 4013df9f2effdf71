/**
 * Which files an ONNX graph reads its tensors from. Only messages that can hold a tensor are looked into; field numbers
 * are those of onnx.proto3. Time is linear in the size of the file, memory in the depth of nesting, which is bounded.
 */

import { BundleError } from "./errors.js";
import { BYTES, readField, readFields } from "./protobuf.js";
import { decodeUtf8, firstInvalid } from "./utf8.js";

const MAX_DEPTH = 100; // of nested messages: the limit of protobuf itself
const WHAT = "an ONNX graph";

// message -> field number -> message in that field
const MESSAGES: Record<string, Record<number, string>> = {
  model: { 7: "graph", 20: "training", 25: "function" },
  training: { 1: "graph", 2: "graph" },
  graph: { 1: "node", 5: "tensor", 15: "sparse_tensor" },
  function: { 7: "node", 11: "attribute" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse_tensor", 23: "sparse_tensor" },
  sparse_tensor: { 1: "tensor", 2: "tensor" },
  tensor: { 13: "entry" },
};

/** Every `location` of external data in a serialised ModelProto. Throws BundleError for bytes that are not one. */
export function externalLocations(model: Uint8Array): Set<string> {
  const locations = new Set<string>();
  const stack: [string, number, number][] = [["model", 0, model.length]]; // message, its next field, its end
  for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
    const [message, , end] = top;
    let position = top[1];
    if (message === "entry") {
      addLocation(model, position, end, locations);
      continue;
    }
    while (position < end) {
      const field = readField(model, position, end, WHAT);
      const inner = field.wire === BYTES ? MESSAGES[message]![field.number] : undefined;
      position = field.end;
      if (inner === undefined) continue;
      stack.push([message, position, end], [inner, field.start, field.end]); // go down, then come back to the rest
      break;
    }
    if (stack.length > MAX_DEPTH) throw new BundleError(`not ${WHAT}: nested too deep`);
  }
  return locations;
}

/** The value of a key-value pair whose key is `location`. A field given twice counts as its last value. */
function addLocation(model: Uint8Array, start: number, end: number, locations: Set<string>): void {
  const parts = ["", "", ""]; // by field number: nothing, key, value
  for (const field of readFields(model, start, end, WHAT)) {
    if (field.wire !== BYTES || field.number > 2) continue;
    const bytes = model.subarray(field.start, field.end);
    if (firstInvalid(bytes) >= 0) throw new BundleError(`not ${WHAT}: a location of external data is not UTF-8`);
    parts[field.number] = decodeUtf8(bytes);
  }
  if (parts[1] === "location") locations.add(parts[2]!);
}
