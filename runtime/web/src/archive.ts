/** A bundle as one zip whose members are stored as they are. Only that is read; everything else is refused. */

import { BundleError } from "./errors.js";
import { isFileName, MANIFEST_NAME } from "./manifest.js";
import { shown } from "./schema.js";
import { decodeUtf8 } from "./utf8.js";

const MAX_MEMBERS = 1025; // what a manifest may list, and itself
const END = 0x06054b50;
const CENTRAL = 0x02014b50;
const LOCAL = 0x04034b50;
const END_SIZE = 22;
const ENCRYPTED = 0x1;
const REGULAR = 0x8000; // S_IFREG

/** The members by name, as views into the zip. Throws BundleError. */
export function readZip(zip: Uint8Array, origin: string): Map<string, Uint8Array> {
  const damaged = (what: string) => new BundleError(`${origin}: damaged zip: ${what}`);
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const end = findEnd(view);
  if (end < 0) throw new BundleError(`${origin}: neither the folder of a bundle nor a zip of one`);
  const count = view.getUint16(end + 10, true);
  if (count > MAX_MEMBERS) throw new BundleError(`${origin}: holds ${count} members, a bundle has at most ${MAX_MEMBERS}`);
  const members = new Map<string, Uint8Array>();
  let place = view.getUint32(end + 16, true);
  let total = 0;
  for (let i = 0; i < count; i++) {
    if (place + 46 > end || view.getUint32(place, true) !== CENTRAL) throw damaged("its list of members is broken");
    const nameSize = view.getUint16(place + 28, true);
    const name = decodeUtf8(zip, place + 46, Math.min(place + 46 + nameSize, end));
    const problem = memberProblem(view, place, name) || (members.has(name) ? "appears twice" : "");
    if (problem) throw new BundleError(`${origin}: member ${shown(name)} ${problem}`);
    const size = view.getUint32(place + 24, true);
    const local = view.getUint32(place + 42, true);
    if (local + 30 > end || view.getUint32(local, true) !== LOCAL) throw damaged(`${name} is not where it should be`);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (start + size > end) throw damaged(`${name} is cut short`);
    members.set(name, zip.subarray(start, start + size));
    total += size;
    place += 46 + nameSize + view.getUint16(place + 30, true) + view.getUint16(place + 32, true);
  }
  if (total > zip.length) throw damaged("members overlap"); // stored, they cannot be larger than the zip
  if (!members.has(MANIFEST_NAME)) {
    throw new BundleError(`${origin}: not a bundle: no ${MANIFEST_NAME} at the top of this zip`);
  }
  return members;
}

/** Where the closing record begins; it ends the file but for a comment. -1 for none. */
function findEnd(view: DataView): number {
  const lowest = Math.max(0, view.byteLength - END_SIZE - 0xffff);
  for (let place = view.byteLength - END_SIZE; place >= lowest; place--) {
    if (view.getUint32(place, true) === END) return place;
  }
  return -1;
}

function memberProblem(view: DataView, place: number, name: string): string {
  if (!isFileName(name)) {
    return "is refused: not a plain file name; zip the files of the bundle, not the folder around them";
  }
  const kind = (view.getUint32(place + 38, true) >>> 16) & 0xf000;
  if (kind !== 0 && kind !== REGULAR) return "is refused: not a plain file";
  if (view.getUint16(place + 8, true) & ENCRYPTED) return "is encrypted; a bundle's zip is not";
  const stored = view.getUint16(place + 10, true) === 0;
  const [packed, size] = [view.getUint32(place + 20, true), view.getUint32(place + 24, true)];
  if (size === 0xffffffff || packed === 0xffffffff) return "is larger than 4 GiB, too large for this runtime";
  if (!stored || packed !== size) return "is compressed; a bundle's zip is stored without compression (zip -0)";
  return "";
}
