/** The manifest's own digest: its last key, over the bytes with that digest zeroed. See SPEC.md, "Bundle". */

import { BundleError } from "./errors.js";
import { sha256 } from "./sha256.js";
import { decodeUtf8 } from "./utf8.js";

const TAIL = 256; // the seal stands within these last bytes
const SEAL = /,\s*"digest":\s*"([0-9a-f]{64})"\s*\}\s*$/;

/** Throws BundleError if the text is not the one that was sealed. Text without a digest passes. */
export async function checkSeal(data: Uint8Array, origin: string): Promise<void> {
  const start = Math.max(0, data.length - TAIL);
  const tail = decodeUtf8(data.subarray(start).map((byte) => (byte < 0x80 ? byte : 0x3f))); // one unit for each byte
  const found = SEAL.exec(tail);
  const changed = new BundleError(`${origin}: was changed after it was written; export the bundle again`);
  if (found === null) {
    if (decodeUtf8(data).includes('"digest"')) throw changed;
    return;
  }
  const digest = found[1]!;
  const blank = data.slice();
  const place = start + found.index + found[0].indexOf(digest);
  blank.fill(0x30, place, place + digest.length);
  if ((await sha256(blank)) !== digest) throw changed;
}
